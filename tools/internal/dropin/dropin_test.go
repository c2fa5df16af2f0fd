// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/slugs"
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

const twoSlugs = `{"slugs": [
 {"slug": "a", "kind": "fix", "components": ["kubelet"], "forms": [{"bases": ["v1.9.11"], "gates": {"A": true}, "page": "docs/patches/a.md"}]},
 {"slug": "b", "kind": "security", "components": ["client-go", "kube-controller-manager"], "forms": [{"bases": ["v1.9.11"], "gates": {"B": false, "GitRepoVolumeDriver": true}}]},
 {"slug": "api", "kind": "fix", "components": ["kube-apiserver"], "forms": [{"bases": ["v1.9.11"], "gates": {"C": true}}]},
 {"slug": "t", "kind": "toolchain", "forms": [{"bases": ["v1.9.11"]}]},
 {"slug": "old", "kind": "fix", "forms": [{"bases": ["v1.2.0"], "gates": {"Old": true}}]}]}`

func table(t *testing.T, entries string) *Table {
	t.Helper()
	s, err := slugs.Parse([]byte(twoSlugs))
	if err != nil {
		t.Fatal(err)
	}
	tab, err := Parse([]byte(`{"differences": [`+entries+`]}`), s)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

const entryOfA = `{"slug": "a", "kinds": ["metric"], "components": ["kubelet"], "names": ["holdfast_a_*"], "how": "added", "builds": ["ours"], "says": "counts"}`

func TestJudge(t *testing.T) {
	tab := table(t, entryOfA)
	metric := Difference{Kind: "metric", Component: Kubelet, Name: "holdfast_a_total", How: Added}
	kinds := KindNames(true)
	if v := tab.Judge(Ours, kinds, []Difference{metric}); !v.OK() || len(v.Allowed["a"]) != 1 {
		t.Errorf("an allowed one: %+v", v)
	}
	if v := tab.Judge(GatesOff, kinds, []Difference{metric}); v.OK() || len(v.Unknown) != 1 {
		t.Errorf("with the gates off it is not allowed: %+v", v)
	}
	if v := tab.Judge(GatesOff, kinds, nil); !v.OK() {
		t.Errorf("with the gates off there is none: %+v", v)
	}
	if v := tab.Judge(Ours, kinds, nil); v.OK() || len(v.Gone) != 1 {
		t.Errorf("an entry that is not seen: %+v", v)
	}
	if v := tab.Judge(Ours, KindNames(false), nil); !v.OK() {
		t.Errorf("metrics are not looked at on the command line: %+v", v)
	}
	for _, d := range []Difference{
		{Kind: "metric", Component: Kubelet, Name: "holdfast_a_total", How: Missing},
		{Kind: "metric", Component: Manager, Name: "holdfast_a_total", How: Added},
		{Kind: "log", Component: Kubelet, Name: "holdfast_a_total", How: Added},
		{Kind: "metric", Component: Kubelet, Name: "holdfast_b_total", How: Added},
	} {
		v := tab.Judge(Ours, kinds, []Difference{metric, d})
		if v.OK() || len(v.Unknown) != 1 || v.Unknown[0] != d {
			t.Errorf("%v: %+v", d, v)
		}
		if r := v.Report(Ours); !strings.Contains(r, "NOT IN "+File) {
			t.Errorf("the report does not say so: %s", r)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	s, err := slugs.Parse([]byte(twoSlugs))
	if err != nil {
		t.Fatal(err)
	}
	for old, with := range map[string]string{
		`"slug": "a"`:               `"slug": "nobody"`,
		`"slug": "a", `:             `"slug": "t", `,
		`"a"`:                       `"old"`,
		`"metric"`:                  `"metrics"`,
		`"kubelet"`:                 `"kube-proxy"`,
		`"components": ["kubelet"]`: `"components": []`,
		`"holdfast_a_*"`:            `"*"`,
		`["holdfast_a_*"]`:          `["x", "x"]`,
		`"added"`:                   `"new"`,
		`["ours"]`:                  `["theirs"]`,
		`"counts"`:                  `" "`,
		`"says"`:                    `"why"`,
	} {
		text := strings.Replace(entryOfA, old, with, 1)
		if _, err := Parse([]byte(`{"differences": [`+text+`]}`), s); err == nil || !strings.Contains(err.Error(), File) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestGatesToSet(t *testing.T) {
	s, err := slugs.Parse([]byte(twoSlugs))
	if err != nil {
		t.Fatal(err)
	}
	if got := GatesToSet(s); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("%v", got)
	}
}

// TestCommitted: the page is that of the table, whose gates are those of slugs.json.
func TestCommitted(t *testing.T) {
	tab, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := slugs.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(Page)))
	if err != nil || string(got) != string(Markdown(tab, s)) {
		t.Errorf("%s is not what %s says (%v): make differences", Page, File, err)
	}
	named := map[string]string{}
	for _, e := range tab.Differences {
		if slices.Contains(e.Kinds, "gate") {
			for _, n := range e.Names {
				named[n] = e.Slug
			}
		}
	}
	want := Gates(s)
	if !reflect.DeepEqual(named, want) {
		t.Errorf("the gates of %s are %v, those of %s %v", File, named, slugs.File, want)
	}
	if want[StaysOn] == "" || slices.Contains(GatesToSet(s), StaysOn) {
		t.Errorf("%s is no gate of ours, or is set", StaysOn)
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
