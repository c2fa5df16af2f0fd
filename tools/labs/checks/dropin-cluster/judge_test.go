// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropincluster

import (
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"holdfast/tools/build/dropin"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// seen is what every build shows.
func seen() dropin.Run {
	var out dropin.Run
	for _, k := range kinds {
		for _, c := range dropin.Components {
			out = append(out, dropin.Fact{Kind: k, Component: c, Name: "common", Value: "v", Count: 10})
		}
	}
	return out
}

// good is a run in which ours has one metric more, which the table has.
func good(c judgetest.Change) *history.History {
	all := []any{allowed{dropin.Table{Differences: []dropin.Entry{{Fix: "one", Kinds: []string{"metric"}, Components: []string{dropin.Kubelet},
		Names: []string{"holdfast_one_*"}, How: dropin.Added, Builds: []string{dropin.Ours}, Says: "its own"}}}}}
	for i, build := range turns(labkit.Short, dropin.Base) {
		t := turn{Number: i + 1, Build: build, Facts: seen()}
		if build == dropin.Ours {
			t.Facts = append(t.Facts, dropin.Fact{Kind: "metric", Component: dropin.Kubelet, Name: "holdfast_one_total"})
		}
		all = append(all, t)
	}
	return history.Make(history.Begin{Lab: "dropin-cluster", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, c.Of(all)...)
}

// withMutants is a run of the long profile in which each mutant is seen, but the one of that
// name.
func withMutants(but string) *history.History {
	h := good(nil)
	all := []any{history.One[allowed](h)}
	seenOf := map[string]turn{}
	for _, t := range history.Of[turn](h) {
		seenOf[t.Build] = t
	}
	for i, build := range turns(labkit.Long, dropin.Base) {
		t := seenOf[build]
		if build == mutant {
			t = seenOf[dropin.Ours]
		}
		t.Facts = slices.Clone(t.Facts)
		for _, m := range dropin.Mutants {
			for _, c := range m.Catches {
				changed := build == mutant && m.Says != but
				f := dropin.Fact{Kind: c.Kind, Component: dropin.Kubelet, Name: strings.ReplaceAll(c.Name, "*", ""), Value: "v", Count: 10}
				switch {
				case c.How == dropin.Counts && changed:
					f.Count = 50
				case c.How == dropin.Changed && changed:
					f.Value = "w"
				case c.How == dropin.Added && !changed, c.How == dropin.Missing && changed:
					continue
				}
				t.Facts = append(t.Facts, f)
			}
		}
		t.Number, t.Build = i+1, build
		all = append(all, t)
	}
	return history.Make(history.Begin{Lab: "dropin-cluster", Variant: string(labkit.Ours), Profile: string(labkit.Long)}, all...)
}

func TestMutants(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "dropin-cluster")
	judgetest.Judge(t, l, withMutants(""), labkit.Passed)
	for _, m := range dropin.Mutants {
		want := labkit.Failed
		if m.Catches[0].Kind == "flag" { // make dropin sees it
			want = labkit.Passed
		}
		judgetest.Judge(t, l, withMutants(m.Says), want)
	}
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "dropin-cluster")
	judgetest.Cut(t, l, good(nil))
	of := func(build string) func(turn) bool { return func(o turn) bool { return o.Build == build } }
	more := func(f dropin.Fact) func(*turn) {
		return func(o *turn) { o.Facts = append(slices.Clone(o.Facts), f) }
	}
	judgetest.Judged(t, l, labkit.Failed, good, map[string]judgetest.Change{
		"ours: 1 differences that belong to no fix":                               judgetest.Where(of(dropin.Ours), more(dropin.Fact{Kind: "file", Component: dropin.Kubelet, Name: "kubelet/new", Value: "-rw"})),
		"ours-gates-off: 1 differences that belong to no fix":                     judgetest.Where(of(dropin.GatesOff), more(dropin.Fact{Kind: "metric", Component: dropin.Kubelet, Name: "holdfast_one_total"})),
		"0 differences that belong to no fix, 1 listed differences that were not": judgetest.Where(of(dropin.Ours), func(o *turn) { o.Facts = seen() }),
		// One more GET with each status of the node.
		"ours: 1 differences": judgetest.Where(of(dropin.Ours), func(o *turn) {
			o.Facts = slices.Clone(o.Facts)
			for i, f := range o.Facts {
				if f.Kind == "request" && f.Component == dropin.Kubelet {
					o.Facts[i].Count = 20
				}
			}
		}),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, good, map[string]judgetest.Change{
		"nothing was seen of: configz": judgetest.Where(of(stock), func(o *turn) {
			o.Facts = slices.DeleteFunc(slices.Clone(o.Facts), func(f dropin.Fact) bool { return f.Kind == "configz" })
		}),
		"0 turns of ours-gates-off, want 3": judgetest.Without(of(dropin.GatesOff)),
	})
	// What one run of stock alone lacks is no difference.
	first := true
	judgetest.Judge(t, l, good(func(o any) any {
		if s, ok := o.(turn); ok && s.Build == stock && first {
			first = false
			s.Facts = append(slices.Clone(s.Facts), dropin.Fact{Kind: "log", Component: dropin.Kubelet, Name: "once"})
			return s
		}
		return o
	}), labkit.Passed)
}

func TestFlat(t *testing.T) {
	got := flat("", map[string]any{"a": map[string]any{"b": 1.0}, "l": []any{"y", "x"}})
	if len(got) != 2 || got[".a.b"] != "1" || got[".l"] != `"x" "y"` {
		t.Error(got)
	}
}

func TestLabelsOf(t *testing.T) {
	label := func(n string) *dto.LabelPair { return &dto.LabelPair{Name: &n} }
	f := &dto.MetricFamily{Metric: []*dto.Metric{{Label: []*dto.LabelPair{label("b")}}, {Label: []*dto.LabelPair{label("a"), label("b")}}}}
	if got := labelsOf(f); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
}

func TestListening(t *testing.T) {
	own := map[string]bool{"77": true}
	line := func(address, state, inode string) string {
		return "   0: " + address + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000     0        0 " + inode + " 1 0000000000000000"
	}
	for text, want := range map[string]string{
		line("0100007F:280A", "0A", "77"): "0100007F 10250",
		line("0100007F:9C40", "0A", "77"): "0100007F chosen by the kernel",
		line("0100007F:280A", "01", "77"): "", // a connection
		line("0100007F:280A", "0A", "78"): "", // another process's
		"  sl  local_address rem_address": "",
	} {
		if got, _ := listening(text, own); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
