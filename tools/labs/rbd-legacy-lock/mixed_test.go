// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlegacylock

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

// mixedGood is a history of the pairs; doubled: 1.7.0 mounts image other, too.
func mixedGood(doubled bool) []any {
	var all []any
	for _, p := range pairs {
		first := on(p.node, mixedFirst, []string{p.node}, p.node)
		both := on(p.node, mixedBoth, []string{p.node}, p.node)
		if doubled {
			first.Locks, both.Locks = nil, nil
		}
		texts := map[string]string{"first": "under test"}
		if p.limit || doubled {
			all = append(all, first, on(p.node, mixedBoth, []string{p.node, mixedOld}))
		} else {
			delete(both.Pods, p.node+"-old")
			texts["second"] = "1.7.0"
			all = append(all, first, both, on(p.node, mixedHanded, []string{mixedOld}, mixedOld))
		}
		all = append(all, on(p.node, mixedEnd, nil), whole(p.node, mixedEnd, texts))
	}
	return all
}

func TestJudgeMixed(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-legacy-lock-mixed")
	of := func(v labkit.Variant, all []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "long"}, all...)
	}
	good := mixedGood(false)
	judgetest.Cut(t, l, of(labkit.Ours, good))
	judgetest.Judge(t, l, of(labkit.Stock, mixedGood(true)), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.GateOff, mixedGood(true)), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Ours, mixedGood(true)), labkit.Reproduced)
	// It was too slow to mount it.
	slow := replaced(replaced(good, stateAt("other", mixedFirst), func(s *rbdlab.State) { s.Locks = nil }), stateAt("other", mixedBoth), func(s *rbdlab.State) { s.Locks = nil })
	for _, v := range []labkit.Variant{labkit.Stock, labkit.GateOff, "ours -rbd-legacy-lock"} {
		judgetest.Judge(t, l, of(v, slow), labkit.Inconclusive)
	}
	end := func(c rbdlab.Contents) bool { return c.Image == "other" }
	for what, c := range map[string]struct {
		all  []any
		want labkit.Verdict
	}{
		"not mounted at first":  {replaced(good, stateAt("other", mixedFirst), func(s *rbdlab.State) { s.Mounts = nil }), labkit.Inconclusive},
		"no lock":               {replaced(good, stateAt("other", mixedFirst), func(s *rbdlab.State) { s.Locks = nil }), labkit.Reproduced},
		"the limit is not seen": {replaced(good, stateAt("node10", mixedBoth), func(s *rbdlab.State) { *s = on("node10", mixedBoth, []string{"node10"}) }), labkit.Inconclusive},
		"the limit is not seen, not clean": {replaced(replaced(good, stateAt("node10", mixedBoth), func(s *rbdlab.State) { *s = on("node10", mixedBoth, []string{"node10"}) }),
			end, func(c *rbdlab.Contents) { c.Fsck = "exit status 4" }), labkit.Reproduced},
		"1.7.0 never runs": {replaced(good, stateAt("other", mixedHanded), func(s *rbdlab.State) { s.Pods = nil }), labkit.Reproduced},
		"held at the end":  {replaced(good, stateAt("other", mixedEnd), func(s *rbdlab.State) { s.Watchers = []string{"a"} }), labkit.Reproduced},
		"a lock stays":     {replaced(good, stateAt("other", mixedEnd), func(s *rbdlab.State) { s.Locks = []rbdlab.Lock{{ID: "a"}} }), labkit.Reproduced},
		"not clean":        {replaced(good, end, func(c *rbdlab.Contents) { c.Fsck = "exit status 4" }), labkit.Reproduced},
		"what 1.7.0 wrote is lost": {replaced(good, end, func(c *rbdlab.Contents) {
			c.Files = map[string]string{rbdlab.DataFile: rbdlab.DataOf("other"), "first": "under test"}
		}), labkit.Reproduced},
	} {
		t.Log(what)
		judgetest.Judge(t, l, of(labkit.Ours, c.all), c.want)
	}
}
