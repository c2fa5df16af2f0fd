// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdoutput

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

// swaps is a history in which the images of these nodes stay.
func swaps(stay ...string) []any {
	var all []any
	for _, n := range oldNodes {
		lost := slices.Contains(stay, n.name)
		lock := []rbdlab.Lock{{ID: rbdlab.LegacyLock(n.name)}}
		on := []rbdlab.Mount{{Node: n.name}}
		mine := map[string][]string{n.name: {"kubernetes.io/rbd/[10.90.0.1:6789]:" + n.name}}
		files := map[string]string{rbdlab.DataFile: rbdlab.DataOf(n.name), "old": "by the old kubelet"}
		gone, next := rbdlab.State{Image: n.name, When: podGone}, rbdlab.State{Image: n.name, When: onNext}
		if lost {
			gone.Locks, gone.InUse, next.Locks = lock, mine, lock
		} else {
			next.Pods = map[string]rbdlab.PodState{n.name + "-next": {Phase: "Running"}}
			files["next"] = "by the next node"
		}
		all = append(all,
			rbdlab.State{Image: n.name, When: mountedByOld, Locks: lock, Watchers: []string{"a"}, Mounts: on},
			rbdlab.Learned{Pod: n.name, Seen: lost},
			rbdlab.State{Image: n.name, When: swappedTo, Locks: lock, Watchers: []string{"a"}, Mounts: on, InUse: mine},
			gone, next, rbdlab.State{Image: n.name, When: atEnd},
			rbdlab.Contents{Image: n.name, When: atEnd, Files: files})
	}
	return all
}

func TestJudgeSwap(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-output-swap")
	of := func(v labkit.Variant, all []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "long"}, all...)
	}
	judgetest.Cut(t, l, of(labkit.Ours, swaps()))
	judgetest.Judge(t, l, of(labkit.Stock, swaps("from17", "from18")), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Stock, swaps("from17")), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Ours, swaps("from17")), labkit.Reproduced)
	// Stock that has not learned of the mount, or that leaves it mapped, does so at every start.
	for what, change := range map[string]func(any) any{
		"not learned": func(o any) any {
			if l, ok := o.(rbdlab.Learned); ok {
				l.Seen = false
				return l
			}
			return o
		},
		"mapped": func(o any) any {
			if s, ok := o.(rbdlab.State); ok && s.When == podGone {
				s.Mapped = []string{s.Image}
				return s
			}
			return o
		},
	} {
		all := swaps("from17", "from18")
		for i := range all {
			all[i] = change(all[i])
		}
		t.Log(what)
		judgetest.Judge(t, l, of(labkit.Stock, all), labkit.Inconclusive)
	}
	change := func(when string, f func(*rbdlab.State)) []any {
		all := swaps()
		for i, o := range all {
			if s, ok := o.(rbdlab.State); ok && s.Image == "from18" && s.When == when {
				f(&s)
				all[i] = s
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		all  []any
		want labkit.Verdict
	}{
		"no lock of 1.8":      {change(mountedByOld, func(s *rbdlab.State) { s.Locks = nil }), labkit.Inconclusive},
		"unmounted by a swap": {change(swappedTo, func(s *rbdlab.State) { s.Mounts = nil }), labkit.Inconclusive},
		"watched":             {change(podGone, func(s *rbdlab.State) { s.Watchers = []string{"a"} }), labkit.Reproduced},
		"a lock stays":        {change(podGone, func(s *rbdlab.State) { s.Locks = []rbdlab.Lock{{ID: "a"}} }), labkit.Reproduced},
		"in use":              {change(podGone, func(s *rbdlab.State) { s.InUse = map[string][]string{"from18": {"[]:from18"}} }), labkit.Reproduced},
		"does not run":        {change(onNext, func(s *rbdlab.State) { s.Pods = nil }), labkit.Reproduced},
		"held at the end":     {change(atEnd, func(s *rbdlab.State) { s.Watchers = []string{"a"} }), labkit.Reproduced},
	} {
		t.Log(name)
		judgetest.Judge(t, l, of(labkit.Ours, c.all), c.want)
	}
	all := swaps()
	c := all[len(all)-1].(rbdlab.Contents)
	c.Files = map[string]string{rbdlab.DataFile: rbdlab.DataOf("from18")}
	all[len(all)-1] = c
	judgetest.Judge(t, l, of(labkit.Ours, all), labkit.Reproduced)
}
