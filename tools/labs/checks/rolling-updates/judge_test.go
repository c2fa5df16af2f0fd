// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rollingupdates

import (
	"slices"
	"strings"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
)

// good is what a run records in which all is well.
func good() []any {
	var out []any
	for _, v := range versions {
		app, tag, _ := strings.Cut(v, " ")
		out = append(out, served{App: app, Version: tag, Images: slices.Repeat([]string{node.WebImage(tag)}, replicas), Answers: []string{tag + " a", tag + " b", tag + " c"}})
	}
	for _, c := range commands {
		out = append(out, ran{c.name, c.exit, "x " + c.says})
	}
	for _, n := range []string{strategic, mergePatch, jsonPatch} {
		out = append(out, asked{n, 200, "{}"})
	}
	return append(out, asked{rolledBack, 201, `{"kind":"Status","status":"Success","code":200}`},
		killed{map[string]int64{"rc": 2, "rc-1": 1}}, finished{map[string]int64{"rc": 3}},
		loaded{App: "rc", Load: load.Report{OK: 9}}, loaded{App: "web", Load: load.Report{OK: 9}})
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rolling-updates")
	of := func(o []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours), Profile: string(labkit.Long)}, o...)
	}
	judgetest.Cut(t, l, of(good()))
	// with replaces the first observation for which f gives another.
	with := func(f func(any) any) *history.History {
		o := good()
		for i := range o {
			if n := f(o[i]); n != nil {
				o[i] = n
				return of(o)
			}
		}
		t.Fatal("nothing was replaced")
		return nil
	}
	for name, tc := range map[string]struct {
		f    func(any) any
		want labkit.Verdict
	}{
		"an old image": {func(o any) any {
			s, ok := o.(served)
			if !ok {
				return nil
			}
			s.Images = append([]string{"old"}, s.Images[1:]...)
			return s
		}, labkit.Failed},
		"two pods": {func(o any) any {
			s, ok := o.(served)
			if !ok {
				return nil
			}
			s.Answers = s.Answers[1:]
			return s
		}, labkit.Failed},
		"an exit status": {func(o any) any {
			if r, ok := o.(ran); ok {
				r.Exit++
				return r
			}
			return nil
		}, labkit.Failed},
		"another output": {func(o any) any {
			if r, ok := o.(ran); ok {
				r.Output = "x"
				return r
			}
			return nil
		}, labkit.Failed},
		"a patch": {func(o any) any {
			if a, ok := o.(asked); ok && a.Name == jsonPatch {
				a.Code = 500
				return a
			}
			return nil
		}, labkit.Failed},
		"the answer to a rollback": {func(o any) any {
			if a, ok := o.(asked); ok && a.Name == rolledBack {
				a.Body = `{"kind":"Status","status":"Failure","code":200}`
				return a
			}
			return nil
		}, labkit.Failed},
		"a lost request": {func(o any) any {
			if a, ok := o.(loaded); ok {
				a.Load.Failed = 1
				return a
			}
			return nil
		}, labkit.Failed},
		"no request": {func(o any) any {
			if a, ok := o.(loaded); ok {
				a.Load.OK = 0
				return a
			}
			return nil
		}, labkit.Inconclusive},
		"a gap": {func(o any) any {
			if a, ok := o.(loaded); ok {
				a.Gaps = 1
				return a
			}
			return nil
		}, labkit.Inconclusive},
		"not half-way": {func(o any) any {
			if _, ok := o.(killed); ok {
				return killed{map[string]int64{"rc": 3}}
			}
			return nil
		}, labkit.Inconclusive},
		"two controllers left": {func(o any) any {
			if _, ok := o.(finished); ok {
				return finished{map[string]int64{"rc": 3, "rc-1": 0}}
			}
			return nil
		}, labkit.Failed},
	} {
		if res := l.Judge(with(tc.f)); res.Verdict != tc.want {
			t.Errorf("%s: %s because %s; want %s", name, res.Verdict, res.Why, tc.want)
		}
	}
}

func TestNewest(t *testing.T) {
	if got := newest("deployments \"web\"\nREVISION  CHANGE-CAUSE\n3         kubectl apply\n10        <none>\n\n"); got != "10" {
		t.Error(got)
	}
	if got := newest("error"); got != "" {
		t.Error(got)
	}
}
