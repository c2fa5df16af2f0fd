// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/fixes"
	"holdfast/tools/build/testrepo"
)

const root = "../../.."

func fact(kind, name, value string) Fact {
	return Fact{Kind: kind, Component: Kubelet, Name: name, Value: value}
}

func counted(kind, name string, n int) Fact {
	return Fact{Kind: kind, Component: Kubelet, Name: name, Count: n}
}

// sample is a run of stock's kubelet.
func sample(gets int) Run {
	return Run{
		fact("flag", "--v", "int, default 0"),
		fact("metric", "kubelet_running_pod_count", "GAUGE: Number of pods"),
		fact("file", "pods/UID", "directory, 0750"),
		fact("log", "I kubelet.go: SyncLoop (ADD, Q)", ""),
		counted("request", "GET /api/v1/nodes/node1", gets),
	}
}

// TestMutations: what `make dropin` is to catch, as it would be observed. The long
// form of the command builds the same mutants and observes them.
func TestMutations(t *testing.T) {
	stock := []Run{sample(20), sample(22)}
	for name, m := range map[string]struct {
		change func(Run) Run
		want   []Difference
	}{
		"nothing":           {func(r Run) Run { return r }, nil},
		"a count within it": {func(r Run) Run { r[4].Count = 24; return r }, nil},
		"a flag more":       {func(r Run) Run { return append(r, fact("flag", "--mutant", "bool")) }, []Difference{{"flag", Kubelet, "--mutant", Added, "", "bool"}}},
		"another default":   {func(r Run) Run { r[0].Value = "int, default 2"; return r }, []Difference{{"flag", Kubelet, "--v", Changed, "int, default 0", "int, default 2"}}},
		"one GET more":      {func(r Run) Run { r[4].Count = 42; return r }, []Difference{{"request", Kubelet, "GET /api/v1/nodes/node1", Counts, "20 to 22", "42"}}},
		"a GET of its own":  {func(r Run) Run { return append(r, counted("request", "GET /version", 1)) }, []Difference{{"request", Kubelet, "GET /version", Added, "", ""}}},
		"fewer GETs":        {func(r Run) Run { r[4].Count = 3; return r }, []Difference{{"request", Kubelet, "GET /api/v1/nodes/node1", Counts, "20 to 22", "3"}}},
		"a file more":       {func(r Run) Run { return append(r, fact("file", "mutant", "file")) }, []Difference{{"file", Kubelet, "mutant", Added, "", "file"}}},
		"a line of the log": {func(r Run) Run { return append(r, fact("log", "I kubelet.go: mutant", "")) }, []Difference{{"log", Kubelet, "I kubelet.go: mutant", Added, "", ""}}},
		"a metric is renamed": {func(r Run) Run { r[1].Name = "kubelet_pods"; return r }, []Difference{
			{"metric", Kubelet, "kubelet_pods", Added, "", "GAUGE: Number of pods"},
			{"metric", Kubelet, "kubelet_running_pod_count", Missing, "GAUGE: Number of pods", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Compare(stock, []Run{m.change(sample(21))})
			if !reflect.DeepEqual(got, m.want) {
				t.Errorf("got %v\nwant %v", got, m.want)
			}
			if v := (&Table{}).Judge(Ours, append(KindNames(true), KindNames(false)...), got); v.OK() != (len(m.want) == 0) {
				t.Errorf("an empty table judges %+v", v)
			}
		})
	}
}

// TestUnsteady: what runs of one build do not share is no difference.
func TestUnsteady(t *testing.T) {
	late := fact("log", "W reflector.go: watch ended", "")
	for name, c := range map[string]struct {
		stock, ours []Run
		want        int
	}{
		"in one run of stock":           {[]Run{{late}, {}}, []Run{{}}, 0},
		"in one of stock, one of ours":  {[]Run{{late}, {}}, []Run{{late}, {}}, 0},
		"in one of two of ours":         {[]Run{{}, {}}, []Run{{late}, {}}, 0},
		"in all of ours, none of stock": {[]Run{{}, {}}, []Run{{late}, {late}}, 1},
		"in all of stock, none of ours": {[]Run{{late}, {late}}, []Run{{}}, 1},
	} {
		if got := Compare(c.stock, c.ours); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// someFixes are two of the drop-in components, with a difference of a, and some that are of no
// account here.
func someFixes(entryOfA string) *fixes.Table {
	of := func(name string, kind fixes.Kind, base string, gates map[string]bool, components ...string) *fixes.Fix {
		return &fixes.Fix{Name: name, Kind: kind, Components: components, Forms: []*fixes.Form{testrepo.Form(base, gates, nil)}}
	}
	a := of("a", fixes.Own, Base, map[string]bool{"A": true}, "kubelet")
	if entryOfA != "" {
		a.Differences = []json.RawMessage{json.RawMessage(entryOfA)}
	}
	return &fixes.Table{Fixes: []*fixes.Fix{a,
		of("b", fixes.Security, Base, map[string]bool{"B": false, "GitRepoVolumeDriver": true}, "client-go", "kube-controller-manager"),
		of("api", fixes.Own, Base, map[string]bool{"C": true}, "kube-apiserver"),
		of("t", fixes.Toolchain, Base, nil),
		of("old", fixes.Own, "v1.2.0", map[string]bool{"Old": true}),
	}}
}

const entryOfA = `{"kinds": ["log"], "components": ["kubelet"], "names": ["I a.go: *"], "how": "added", "builds": ["ours"], "says": "says so"}`

func TestJudge(t *testing.T) {
	tab, err := New(someFixes(entryOfA), Base)
	if err != nil {
		t.Fatal(err)
	}
	line := Difference{Kind: "log", Component: Kubelet, Name: "I a.go: hello", How: Added}
	metric := Difference{Kind: "metric", Component: Manager, Name: "holdfast_b_total", How: Added}
	kinds := []string{"log", "metric"}
	for name, c := range map[string]struct {
		build         string
		kinds         []string
		found         []Difference
		unknown, gone int
	}{
		"an allowed one":                       {Ours, kinds, []Difference{line}, 0, 0},
		"a metric may be seen, or not":         {Ours, kinds, []Difference{line, metric}, 0, 0},
		"with the gates off it is not allowed": {GatesOff, kinds, []Difference{line}, 1, 0},
		"with the gates off there is none":     {GatesOff, kinds, nil, 0, 0},
		"metrics stay with the gates off":      {GatesOff, kinds, []Difference{metric}, 0, 0},
		"an entry that is not seen":            {Ours, kinds, nil, 0, 1},
		"a kind that is not looked at":         {Ours, []string{"metric"}, nil, 0, 0},
		"two gates of b and one of a":          {Ours, []string{"gate"}, nil, 0, 6},
		"missing":                              {Ours, kinds, []Difference{line, {Kind: "metric", Component: Kubelet, Name: "holdfast_a_total", How: Missing}}, 1, 0},
		"of another component":                 {Ours, kinds, []Difference{line, {Kind: "log", Component: Manager, Name: line.Name, How: Added}}, 1, 0},
		"metric of no fix":                     {Ours, kinds, []Difference{line, {Kind: "metric", Component: Kubelet, Name: "holdfast_none_total", How: Added}}, 1, 0},
		"metric of the toolchain":              {Ours, kinds, []Difference{line, {Kind: "metric", Component: Kubelet, Name: "holdfast_t_total", How: Added}}, 1, 0},
		"gate of another component":            {Ours, []string{"metric"}, []Difference{{Kind: "gate", Component: Kubelet, Name: "C", How: Added}}, 1, 0},
	} {
		v := tab.Judge(c.build, c.kinds, c.found)
		if len(v.Unknown) != c.unknown || len(v.Gone) != c.gone || v.OK() != (c.unknown+c.gone == 0) {
			t.Errorf("%s: %+v", name, v)
		}
		if r := v.Report(c.build); strings.Contains(r, "OF NO FIX") != (c.unknown > 0) || strings.Contains(r, "NOT SEEN") != (c.gone > 0) {
			t.Errorf("%s: the report does not say so: %s", name, r)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for old, with := range map[string]string{
		`"log"`:                     `"logs"`,
		`["log"]`:                   `["metric"]`,
		`"kinds"`:                   `"fix": "b", "kinds"`,
		`"kubelet"`:                 `"kube-proxy"`,
		`"components": ["kubelet"]`: `"components": []`,
		`"I a.go: *"`:               `"*"`,
		`["I a.go: *"]`:             `["x", "x"]`,
		`"added"`:                   `"new"`,
		`["ours"]`:                  `["theirs"]`,
		`"says so"`:                 `" "`,
		`"says"`:                    `"why"`,
		`"how"`:                     `"bases": ["v1.12.10"], "how"`,
		`"builds"`:                  `"bases": ["v1.2.0"], "builds"`,
	} {
		text := strings.Replace(entryOfA, old, with, 1)
		if _, err := New(someFixes(text), Base); text == entryOfA || err == nil || !strings.Contains(err.Error(), "patches/a/fix.json: difference 1") {
			t.Errorf("%s: %v", text, err)
		}
	}
	of := someFixes("")
	of.Find("t").Differences = []json.RawMessage{json.RawMessage(entryOfA)}
	if _, err := New(of, Base); err == nil || !strings.Contains(err.Error(), "stock has the toolchain's patches too") {
		t.Error(err)
	}
}

// TestBases: each base has the differences of its own form, and those that name it.
func TestBases(t *testing.T) {
	const second = "v1.12.10"
	has := func(base, entry string) map[string]bool {
		of := someFixes(entry)
		f := testrepo.Form(second, nil, nil)
		f.Gates = map[string]fixes.Gate{"A": {Default: true}, "Old": {Default: true, Stage: "GA"}}
		of.Fixes[0].Forms = append(of.Fixes[0].Forms, f)
		tab, err := New(of, base)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, e := range tab.Differences {
			for _, n := range e.Names {
				names[n] = true
			}
		}
		return names
	}
	const only = `"bases": ["` + second + `"], "kinds"`
	for base, want := range map[string][]string{Base: {"A", "B"}, second: {"A"}} {
		got := has(base, strings.Replace(entryOfA, `"kinds"`, only, 1))
		for _, g := range want {
			if !got[g] {
				t.Errorf("%s: %v has no %s", base, got, g)
			}
		}
		if got["Old"] || got["I a.go: *"] != (base == second) {
			t.Errorf("%s: %v", base, got)
		}
		if !has(base, entryOfA)["I a.go: *"] {
			t.Errorf("%s lacks what all bases have", base)
		}
	}
}

func TestGatesToSet(t *testing.T) {
	if got := GatesToSet(someFixes(""), Base); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("%v", got)
	}
}

// TestCommitted: the page is what the fixes say.
func TestCommitted(t *testing.T) {
	s, err := fixes.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Markdown(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(Page)))
	if err != nil || string(got) != string(want) {
		t.Errorf("%s is not what the fixes say (%v): make differences", Page, err)
	}
	for _, base := range Bases {
		if Gates(s, base)[StaysOn] == "" || slices.Contains(GatesToSet(s, base), StaysOn) {
			t.Errorf("%s: %s is no gate of ours, or is set", base, StaysOn)
		}
	}
}

func TestRunCheck(t *testing.T) {
	r := Run{fact("flag", "--v", "int"), {Kind: "flag", Component: Manager, Name: "--v"}, fact("file", "x", "")}
	if err := r.Check([]string{"flag", "file"}, Components); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]Run{
		"nothing":        {},
		"one component":  r[:1],
		"no such kind":   append(slices.Clone(r), fact("smell", "x", "")),
		"no component":   append(slices.Clone(r), Fact{Kind: "flag", Name: "x"}),
		"no name":        append(slices.Clone(r), fact("flag", "", "x")),
		"no files there": r[:2],
	} {
		if err := bad.Check([]string{"flag", "file"}, Components); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
