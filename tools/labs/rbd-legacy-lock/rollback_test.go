// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlegacylock

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/rbdlab"
)

// on is an image that nodes have mounted for writing, with the locks of these hosts.
func on(image, when string, nodes []string, hosts ...string) rbdlab.State {
	s := rbdlab.State{Image: image, When: when, Mapped: nodes, Pods: map[string]rbdlab.PodState{image: {Phase: "Running"}, image + "-old": {Phase: "Running"}}}
	for _, n := range nodes {
		s.Watchers = append(s.Watchers, "10.90.0.11:0/1")
		s.Mounts = append(s.Mounts, rbdlab.Mount{Node: n, Path: "/a"}, rbdlab.Mount{Node: n, Path: "/b"})
	}
	for _, h := range hosts {
		s.Locks = append(s.Locks, rbdlab.Lock{ID: rbdlab.LegacyLock(h)})
	}
	return s
}

func whole(image, when string, texts map[string]string) rbdlab.Contents {
	c := rbdlab.Contents{Image: image, When: when, Files: map[string]string{rbdlab.DataFile: rbdlab.DataOf(image)}}
	for k, v := range texts {
		c.Files[k] = v
	}
	return c
}

// replaced is the observations with one of them, that which match says, changed.
func replaced[T any](all []any, match func(T) bool, change func(*T)) []any {
	all = slices.Clone(all)
	for i, o := range all {
		if v, ok := o.(T); ok && match(v) {
			change(&v)
			all[i] = v
		}
	}
	return all
}

func stateAt(image, when string) func(rbdlab.State) bool {
	return func(s rbdlab.State) bool { return s.Image == image && s.When == when }
}

// rollbackGood is a history in which each node of the variant came back with everything.
func rollbackGood(v labkit.Variant, p labkit.Profile) []any {
	var all []any
	s := kubeletlab.Snapshot{"default/p/c": {ID: "a", Pod: "p"}}
	for _, c := range cellsOf(v, p) {
		for _, what := range swaps {
			all = append(all, swapped{Cell: c.name, What: what, Before: s, After: s})
		}
		for _, letter := range letters {
			image, texts := c.name+"-"+letter, map[string]string{}
			for _, when := range moments(letter) {
				texts[written(when)] = textOf(image, when)
				var hosts []string
				if c.gate && slices.Contains(c.lockedAt(letter), when) {
					hosts = []string{c.name}
				}
				all = append(all, on(image, when, []string{c.name}, hosts...))
			}
			all = append(all, on(image, deleted, nil), whole(image, deleted, texts))
		}
		all = append(all, arrived{c.name})
	}
	if v != labkit.Ours {
		return all
	}
	x, y := controlNode+"-x", controlNode+"-y"
	return append(all, learned{12},
		on(x, backAgain, []string{controlNode}), on(x, deleted, []string{controlNode}), on(x, byHand, nil), whole(x, deleted, map[string]string{written(byOld): textOf(x, byOld)}),
		on(y, backAgain, []string{controlNode}), on(y, deleted, nil), whole(y, deleted, map[string]string{written(byOld): textOf(y, byOld)}))
}

func TestJudgeRollback(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-legacy-lock-rollback")
	of := func(v labkit.Variant, all []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "long"}, all...)
	}
	// Two nodes of the five: each cut is judged.
	judgetest.Cut(t, l, history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}, rollbackGood(labkit.Ours, labkit.Short)...))
	good := rollbackGood(labkit.Ours, labkit.Long)
	judgetest.Judge(t, l, of(labkit.Ours, good), labkit.Absent)
	swap := func(what string) func(swapped) bool {
		return func(s swapped) bool { return s.Cell == "from17off" && s.What == what }
	}
	anew := func(s *swapped) { s.After = kubeletlab.Snapshot{"default/p/c": {ID: "b", Pod: "p"}} }
	content := func(image string) func(rbdlab.Contents) bool {
		return func(c rbdlab.Contents) bool { return c.Image == image }
	}
	for what, c := range map[string]struct {
		all  []any
		want labkit.Verdict
	}{
		"recreated on the way there": {replaced(good, swap(there), anew), labkit.Reproduced},
		"recreated on the way back":  {replaced(good, swap(backAfterReboot), anew), labkit.Reproduced},
		"nothing to recreate":        {replaced(good, swap(back), func(s *swapped) { s.Before, s.After = nil, nil }), labkit.Inconclusive},
		"nothing to recreate, and data lost": {replaced(replaced(good, swap(back), func(s *swapped) { s.Before, s.After = nil, nil }),
			content("from19-c"), func(c *rbdlab.Contents) { c.Files = map[string]string{} }), labkit.Reproduced},
		"no lock":                     {replaced(good, stateAt("from17-d", rebooted), func(s *rbdlab.State) { s.Locks = nil }), labkit.Reproduced},
		"a lock with the gate off":    {replaced(good, stateAt("from17off-c", underTest), func(s *rbdlab.State) { *s = on("from17off-c", underTest, []string{"from17off"}, "from17off") }), labkit.Reproduced},
		"a lock taken after the gate": {replaced(good, stateAt("turned-e", rebooted), func(s *rbdlab.State) { *s = on("turned-e", rebooted, []string{"turned"}, "turned") }), labkit.Reproduced},
		"the gate's lock stays":       {replaced(good, stateAt("turned-c", deleted), func(s *rbdlab.State) { *s = on("turned-c", deleted, nil, "turned") }), labkit.Reproduced},
		"unmounted":                   {replaced(good, stateAt("from19-c", backAgain), func(s *rbdlab.State) { s.Mounts = nil }), labkit.Reproduced},
		"does not run":                {replaced(good, stateAt("from19-e", rebooted), func(s *rbdlab.State) { s.Pods = nil }), labkit.Reproduced},
		"foreign":                     {replaced(good, stateAt("from19-d", rebooted), func(s *rbdlab.State) { s.InUse = map[string][]string{"from19": {"kubernetes.io/rbd/[]:"}} }), labkit.Reproduced},
		"foreign, by stock":           {replaced(good, stateAt("from19-a", backAgain), func(s *rbdlab.State) { s.InUse = map[string][]string{"from19": {"kubernetes.io/rbd/[]:"}} }), labkit.Absent},
		"not let go of":               {replaced(good, stateAt("from18-a", deleted), func(s *rbdlab.State) { s.Watchers = []string{"a"} }), labkit.Reproduced},
		"a lock stays":                {replaced(good, stateAt("from18-c", deleted), func(s *rbdlab.State) { *s = on("from18-c", deleted, nil, "from18") }), labkit.Reproduced},
		"data lost":                   {replaced(good, content("from17-d"), func(c *rbdlab.Contents) { c.Files = map[string]string{rbdlab.DataFile: rbdlab.DataOf(c.Image)} }), labkit.Reproduced},
		"stock lets go at once":       {replaced(good, stateAt("control-x", deleted), func(s *rbdlab.State) { *s = on("control-x", deleted, nil) }), labkit.Inconclusive},
		"stock never lets go":         {replaced(good, stateAt("control-y", deleted), func(s *rbdlab.State) { *s = on("control-y", deleted, []string{controlNode}) }), labkit.Inconclusive},
		"not unmapped by hand":        {replaced(good, stateAt("control-x", byHand), func(s *rbdlab.State) { s.Watchers = []string{"a"} }), labkit.Inconclusive},
		"the control's data is lost":  {replaced(good, content("control-x"), func(c *rbdlab.Contents) { c.Fsck = "exit status 4" }), labkit.Reproduced},
		"not clean":                   {replaced(good, content("from17-e"), func(c *rbdlab.Contents) { c.Fsck = "exit status 4" }), labkit.Reproduced},
	} {
		t.Log(what)
		judgetest.Judge(t, l, of(labkit.Ours, c.all), c.want)
	}
	open := []any{on("from19-c", underTest, []string{"from19"}), on("from19-d", underTest, []string{"from19"})}
	judgetest.Judge(t, l, of(labkit.GateOff, open), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.GateOff, nil), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.GateOff, rollbackGood(labkit.GateOff, labkit.Long)), labkit.Inconclusive)
}
