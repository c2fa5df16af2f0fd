// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// bad12 are the observations of a row where the vulnerability is there, as stock 1.12.10 makes
// them.
func bad12(r row, p labkit.Profile) []any {
	all := bad(r.fix, p)
	for i, o := range all {
		switch o := o.(type) {
		case clones:
			o.Exploits["git-option"] = exploit{Refused: true} // by upstream
			all[i] = o
		case keys:
			delete(o.Logged, "heketi-secret")
			all[i] = o
		case grown:
			o.Failed = o.Pod == "hook-exec"
			all[i] = o
		}
	}
	return all
}

func TestRowsOf12(t *testing.T) {
	var old, now []string
	for _, r := range rowsOf("v1.9.11") {
		old = append(old, r.fix)
	}
	for _, r := range rowsOf("v1.12.10") {
		now = append(now, r.fix)
	}
	want := slices.DeleteFunc(slices.Clone(old), func(fix string) bool { return fix == healthz.fix })
	if !slices.Equal(now, want) || len(now) != len(old)-1 {
		t.Errorf("rows %v, want %v", now, want)
	}
}

func TestJudge12(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "security-v1.12.10")
	const p = labkit.Short
	of := func(v labkit.Variant, of func(row) []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: string(p)}, flat(rowsOf("v1.12.10"), of)...)
	}
	fine, there := func(r row) []any { return good(r.fix, p) }, func(r row) []any { return bad12(r, p) }
	judgetest.Cut(t, l, of(labkit.Ours, fine))
	judgetest.Judge(t, l, of(labkit.Stock, there), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Ours, there), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.GateOff, func(r row) []any {
		if r.gate == "" {
			return fine(r)
		}
		return there(r)
	}), labkit.Reproduced)
	for _, one := range rowsOf("v1.12.10") {
		but := func(same, others func(row) []any) func(row) []any {
			return func(r row) []any {
				if r.fix == one.fix {
					return same(r)
				}
				return others(r)
			}
		}
		judgetest.Judge(t, l, of(labkit.Stock, but(fine, there)), labkit.Inconclusive)
		judgetest.Judge(t, l, of("ours -"+labkit.Variant(one.fix), but(there, fine)), labkit.Reproduced)
	}
	// What only one of the releases does.
	for name, change := range map[string]struct {
		v  labkit.Variant
		of func(row) []any
	}{
		"an option is not refused":             {labkit.Ours, with(fine, func(o *clones) { o.Exploits["git-option"] = exploit{} })},
		"an option works":                      {labkit.Stock, with(there, func(o *clones) { o.Exploits["git-option"] = exploit{Did: true} })},
		"the hook fails on ours":               {labkit.Ours, with(fine, func(o *grown) { o.Failed = o.Pod == "hook-exec" })},
		"an HTTP probe fails":                  {labkit.Stock, with(there, func(o *grown) { o.Failed = true })},
		"no parameter's key, but the Secret's": {labkit.Stock, with(there, func(o *keys) { o.Logged = map[string]int{"heketi-secret": 1} })},
	} {
		if res := l.Judge(of(change.v, change.of)); res.Verdict != labkit.Inconclusive {
			t.Errorf("%s: %s because %s", name, res.Verdict, res.Why)
		}
	}
	old := judgetest.Lab(t, Labs(), "security")
	judgetest.Judge(t, old, made(labkit.Stock, p, there), labkit.Inconclusive) // in 1.9.11 these are too few
}

// with changes the observations of one type.
func with[T any](of func(row) []any, change func(*T)) func(row) []any {
	return func(r row) []any {
		all := of(r)
		for i, o := range all {
			if o, ok := o.(T); ok {
				change(&o)
				all[i] = o
			}
		}
		return all
	}
}

// TestMinusRows: a build without fixes is asked about theirs, one without others about all.
func TestMinusRows(t *testing.T) {
	of := func(v labkit.Variant) (fixes []string) {
		for _, r := range in(v, rows) {
			fixes = append(fixes, r.fix)
		}
		return fixes
	}
	if got := of(labkit.Ours.Without(spdy.fix, gitRepo.fix)); !slices.Equal(got, []string{gitRepo.fix, spdy.fix}) {
		t.Errorf("got %v", got)
	}
	for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours, labkit.GateOff, labkit.Ours.Without("predecessor")} {
		if n := len(of(v)); n != len(rows) {
			t.Errorf("%s: %d rows", v, n)
		}
	}
	l := judgetest.Lab(t, Labs(), "security")
	v := labkit.Ours.Without(heketi.fix)
	if got, want := len(l.Steps(&labkit.Env{Lab: l, Variant: v})), 4; got != want { // cluster, start, look, alive
		t.Errorf("%d steps, want %d", got, want)
	}
	for _, c := range []struct {
		all  []any
		want labkit.Verdict
	}{{bad(heketi.fix, labkit.Short), labkit.Reproduced}, {good(heketi.fix, labkit.Short), labkit.Absent}, {nil, labkit.Inconclusive}} {
		judgetest.Judge(t, l, history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: string(labkit.Short)}, c.all...), c.want)
	}
}
