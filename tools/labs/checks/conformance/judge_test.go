// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// names are so many specs as the short profile has.
func names() []string {
	n, _ := clusterSuite.table.want(labkit.Short)
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("spec %02d [Conformance]", i))
	}
	return out
}

func specs(result string, names ...string) []spec {
	var out []spec
	for _, n := range names {
		out = append(out, spec{Name: n, Result: result, Seconds: 1})
	}
	return out
}

// run is a short history whose spec 3 failed, with what came of it then.
func run(parallel []spec, more ...any) []any {
	return append([]any{planned{names()}, ran{Pass: "parallel", Seconds: 9, Specs: parallel}}, append(more, alive{2})...)
}

func oneFailed() []spec {
	s := specs(passed, names()...)
	s[3].Result = failed
	return s
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "conformance")
	begin := history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}
	good := specs(passed, names()...)
	three := names()[3]
	judgetest.Cut(t, l, history.Make(begin, run(good)...))
	flaky := run(oneFailed(), ran{Pass: passAgain, Specs: specs(passed, three)})
	flaky[1] = ran{Pass: "parallel", Exit: "exit status 1", Specs: oneFailed()}
	judgetest.Cut(t, l, history.Make(begin, flaky...))
	if res := judgetest.Judge(t, l, history.Make(begin, flaky...), labkit.Passed); !slices.ContainsFunc(res.Facts, func(f string) bool { return strings.Contains(f, three) }) {
		t.Errorf("the facts %q do not name %s", res.Facts, three)
	}
	for what, all := range map[string][]any{
		"failed":             run(oneFailed()),
		"failed again":       run(oneFailed(), ran{Pass: passAgain, Specs: specs(failed, three)}),
		"another ran again":  run(oneFailed(), ran{Pass: passAgain, Specs: specs(passed, names()[4])}),
		"one is not there":   run(good[1:]),
		"skipped itself":     run(append(specs(skipped, names()[0]), good[1:]...)),
		"ran twice":          run(append(specs(passed, names()[0]), good...)),
		"not planned":        run(append(specs(passed, "other"), good...)),
		"another number":     {planned{names()[1:]}, ran{Pass: "parallel", Specs: good[1:]}, alive{2}},
		"one planned anew":   {planned{append(names(), "new")}, ran{Pass: "parallel", Specs: append(specs(passed, "new"), good...)}, alive{2}},
		"failed, then twice": run(oneFailed(), ran{Pass: passAgain, Specs: append(specs(passed, three), specs(failed, three)...)}),
	} {
		if res := l.Judge(history.Make(begin, all...)); res.Verdict != labkit.Failed {
			t.Errorf("%s: %s because %s", what, res.Verdict, res.Why)
		}
	}
	for what, all := range map[string][]any{
		"no component is looked at": run(good)[:2],
		"nothing ran":               run(nil),
		"the suite broke":           {planned{names()}, ran{Pass: "parallel", Exit: "exit status 2", Specs: good}, alive{2}},
		"the suite has no cluster":  run(append(specs(failed, "BeforeSuite"), good...)),
		"a pass twice":              run(good, ran{Pass: "parallel", Specs: good}),
	} {
		if res := l.Judge(history.Make(begin, all...)); res.Verdict != labkit.Inconclusive {
			t.Errorf("%s: %s because %s", what, res.Verdict, res.Why)
		}
	}
	// The long profile has other specs, and all of them.
	begin.Profile = "long"
	long := []any{planned{names()}, ran{Pass: "parallel", Specs: good[1:]}, ran{Pass: "serial", Specs: good[:1]}, alive{2}}
	judgetest.Judge(t, l, history.Make(begin, long...), labkit.Failed)
	judgetest.Judge(t, l, history.Make(begin, run(good)...), labkit.Inconclusive)
}

// TestJudgeNode: the node suite has a table of its own, and one pass in each profile.
func TestJudgeNode(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "conformance-node")
	begin := history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}
	var some []string
	n, _ := nodeSuite.table.want(labkit.Short)
	for i := range n {
		some = append(some, fmt.Sprintf("spec %02d [Conformance]", i))
	}
	good := func(parallel []spec) []any {
		return []any{planned{some}, ran{Pass: passParallel, Seconds: 9, Specs: parallel}, alive{1}}
	}
	judgetest.Cut(t, l, history.Make(begin, good(specs(passed, some...))...))
	judgetest.Judge(t, l, history.Make(begin, good(specs(passed, some[1:]...))...), labkit.Failed)
	bad := specs(passed, some...)
	bad[2].Result = failed
	judgetest.Judge(t, l, history.Make(begin, good(bad)...), labkit.Failed)
	// A spec may skip itself if the node's table has it, and not if that of the cluster has it.
	left := func(name string) []any {
		with := append([]string{name}, some[1:]...)
		return []any{planned{with}, ran{Pass: passParallel, Specs: append(specs(skipped, name), specs(passed, some[1:]...)...)}, alive{1}}
	}
	judgetest.Judge(t, l, history.Make(begin, left(nodeSuite.table.LeftOut[1].Spec)...), labkit.Passed)
	judgetest.Judge(t, l, history.Make(begin, left("spec of another suite [Conformance]")...), labkit.Failed)
	ranIt := good(specs(passed, append([]string{nodeSuite.table.LeftOut[1].Spec}, some[1:]...)...))
	ranIt[0] = planned{append([]string{nodeSuite.table.LeftOut[1].Spec}, some[1:]...)}
	judgetest.Judge(t, l, history.Make(begin, ranIt...), labkit.Failed)
	// In the long profile the names have a sum.
	begin.Profile = "long"
	judgetest.Judge(t, l, history.Make(begin, good(specs(passed, some...))...), labkit.Failed)
	var all []string
	for i := range nodeSuite.table.Conformance.Specs {
		all = append(all, fmt.Sprintf("spec %03d [Conformance]", i))
	}
	other := []any{planned{all}, ran{Pass: passParallel, Specs: specs(passed, all...)}, alive{1}}
	if res := judgetest.Judge(t, l, history.Make(begin, other...), labkit.Failed); !strings.Contains(res.Why, "node-specs.json") {
		t.Errorf("because %s", res.Why)
	}
}

func TestJudgeSwap(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "conformance-swap")
	begin := history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}
	there, back := swapped{"ours", 5, 19, true}, swapped{"stock", 12, 19, true}
	good := specs(passed, names()...)
	judgetest.Cut(t, l, history.Make(begin, run(good, there, back)...))
	judgetest.Judge(t, l, history.Make(begin, run(oneFailed(), there, back)...), labkit.Failed)
	for _, all := range [][]any{
		run(good), run(good, there), run(good, back, there),
		run(good, swapped{"ours", 0, 19, true}, back), run(good, there, swapped{"stock", 19, 19, true}), run(good, there, swapped{"stock", 12, 19, false}),
	} {
		judgetest.Judge(t, l, history.Make(begin, all...), labkit.Inconclusive)
	}
}

// TestTables: what the tables say can be read and used, and their fixes exist.
func TestTables(t *testing.T) {
	all, err := fixes.Load("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []*suite{clusterSuite, nodeSuite} {
		if _, err := regexp.Compile(u.focus(labkit.Short)); err != nil {
			t.Error(err)
		}
		for _, s := range u.table.Short {
			if s.Specs == 0 || len(s.Shows) == 0 {
				t.Errorf("%s: %q: \"specs\" or \"shows\" is empty", u.file, s.Focus)
			}
			for _, name := range s.Shows {
				if !slices.ContainsFunc(all.Fixes, func(x *fixes.Fix) bool { return x.Name == name }) {
					t.Errorf("%s: %q: there is no fix %q", u.file, s.Focus, name)
				}
			}
		}
		for _, l := range u.table.LeftOut {
			if l.Reason == "" {
				t.Errorf("%s: %q is left out without a reason", u.file, l.Spec)
			}
		}
		if len(u.table.Conformance.SHA256) != 64 || u.table.Conformance.Specs == 0 {
			t.Errorf("%s: %d specs, their sum is %q", u.file, u.table.Conformance.Specs, u.table.Conformance.SHA256)
		}
	}
}

func TestReadReport(t *testing.T) {
	got, err := readReport([]byte(`<?xml version="1.0"?><testsuite tests="3" failures="1" time="9">
<testcase name="a" classname="s" time="1.5"></testcase>
<testcase name="b" classname="s" time="2"><failure type="Failure">it &lt;broke&gt;</failure><system-out>x</system-out></testcase>
<testcase name="c" classname="s" time="0"><skipped></skipped></testcase></testsuite>`))
	want := []spec{{"a", passed, 1.5, ""}, {"b", failed, 2, "it <broke>"}, {"c", skipped, 0, ""}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := readReport([]byte("<testsuite><testcase")); err == nil {
		t.Error("half a file was read")
	}
}
