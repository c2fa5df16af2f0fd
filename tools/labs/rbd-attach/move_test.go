// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdattach

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

// moved is a history of both images; stays: the lock of 1.7.0 stays under the kubelet under test.
func moved(stays bool) []any {
	var all []any
	for _, image := range []string{oneBlank, twoBlanks} {
		see := func(when string, locked bool, node, pod string) {
			s := rbdlab.State{Image: image, When: when, Pods: map[string]rbdlab.PodState{}}
			if locked {
				s.Locks = []rbdlab.Lock{{ID: rbdlab.LegacyLock("old-1")}}
			}
			if node != "" {
				s.Watchers, s.Mapped = []string{"10.90.0.11:0/1"}, []string{node}
			}
			if pod != "" {
				s.Pods[image+"-"+pod] = rbdlab.PodState{Phase: "Running"}
			}
			all = append(all, s)
		}
		two, files := image == twoBlanks, []string{"old-1", "old-2", "next"}
		see(onFirst, true, "old-1", "old-1")
		see(leftIt, two, "", "")
		if two {
			see(onSecond, true, "", "")
			files = []string{"old-1", "next"}
		} else {
			see(onSecond, false, "old-2", "old-2")
		}
		see(onNext, two && stays, "next", "next")
		see(atEnd, two && stays, "", "")
		c := rbdlab.Contents{Image: image, When: atEnd, Files: map[string]string{rbdlab.DataFile: rbdlab.DataOf(image)}}
		for _, f := range files {
			c.Files[f] = "written there"
		}
		all = append(all, c)
	}
	return all
}

func TestJudgeMove(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-attach-move")
	of := func(v labkit.Variant, all []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "long"}, all...)
	}
	judgetest.Cut(t, l, of(labkit.Ours, moved(false)))
	judgetest.Judge(t, l, of(labkit.Stock, moved(true)), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.GateOff, moved(true)), labkit.Reproduced)
	change := func(image, when string, f func(*rbdlab.State)) []any {
		all := slices.Clone(moved(false))
		for i, o := range all {
			if s, ok := o.(rbdlab.State); ok && s.Image == image && s.When == when {
				f(&s)
				all[i] = s
			}
		}
		return all
	}
	none := func(s *rbdlab.State) { s.Pods = nil }
	held := func(s *rbdlab.State) { s.Watchers = []string{"a"} }
	for name, c := range map[string]struct {
		all  []any
		want labkit.Verdict
	}{
		"1.7 to 1.7 is stuck with one blank": {change(oneBlank, onSecond, none), labkit.Inconclusive},
		"1.7 to 1.7 runs with two blanks":    {change(twoBlanks, onSecond, func(s *rbdlab.State) { s.Pods = map[string]rbdlab.PodState{twoBlanks + "-old-2": {Phase: "Running"}} }), labkit.Inconclusive},
		"1.7 took no lock":                   {change(twoBlanks, onFirst, func(s *rbdlab.State) { s.Locks = nil }), labkit.Inconclusive},
		"1.7 did not let go":                 {change(twoBlanks, leftIt, held), labkit.Inconclusive},
		"does not run on the next node":      {change(twoBlanks, onNext, none), labkit.Reproduced},
		"is not let go of at the end":        {change(twoBlanks, atEnd, held), labkit.Reproduced},
		"a lock stays":                       {change(oneBlank, atEnd, func(s *rbdlab.State) { s.Locks = []rbdlab.Lock{{ID: "a"}} }), labkit.Reproduced},
	} {
		t.Log(name)
		judgetest.Judge(t, l, of(labkit.Ours, c.all), c.want)
	}
	judgetest.Judge(t, l, of(labkit.Stock, change(twoBlanks, onNext, none)), labkit.Inconclusive)
	all := moved(false)
	c := all[len(all)-1].(rbdlab.Contents)
	c.Fsck = "exit status 4"
	all[len(all)-1] = c
	judgetest.Judge(t, l, of(labkit.Ours, all), labkit.Reproduced)
}
