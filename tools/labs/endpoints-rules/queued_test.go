// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/webset"
)

// switchedEarly has pod 3 ready again before its old container was gone.
func switchedEarly(c *change) { c.Updates = []update{{at(1), []string{webset.Name(3)}}, {at(7), nil}} }

func madeQueued(p labkit.Profile, c judgetest.Change) *history.History {
	var list []any
	for _, col := range queuedColumns {
		for n := range rounds(p) {
			one := change{goodRound(n, false).replacement, col, at(0.9)}
			if col == queuedColumn {
				switchedEarly(&one)
			}
			list = append(list, one)
		}
	}
	return history.Make(history.Begin{Lab: "endpoints-rules-queued", Variant: string(labkit.Ours), Profile: string(p)}, c.Of(list)...)
}

func TestJudgeQueued(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-queued")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, madeQueued(p, nil))
	}
	in := func(c judgetest.Change) *history.History { return madeQueued(labkit.Short, c) }
	col := func(name column, f func(*change)) judgetest.Change {
		return judgetest.Where(func(c change) bool { return c.Column == name }, f)
	}
	judgetest.Judged(t, l, labkit.Reproduced, in, map[string]judgetest.Change{
		"kubelet: the client enabled":                     col(kubeletColumn, switchedEarly),
		"kubelet: 5s after the last pod became ready, 19": col(kubeletColumn, func(c *change) { c.Late, c.Addresses = 0, 19 }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, in, map[string]judgetest.Change{
		"without its own limit: no pod was enabled too early":   col(queuedColumn, func(c *change) { c.Updates = goodRound(0, false).Updates }),
		"without its own limit: the images were changed within": col(queuedColumn, func(c *change) { c.Patched = at(3) }),
		"kubelet: 0 rounds, want 1":                             judgetest.Without(func(c change) bool { return c.Column == kubeletColumn }),
	})
	judgetest.Judged(t, l, labkit.Absent, in, map[string]judgetest.Change{
		"up to 1 in a round": col(queuedColumn, func(c *change) { c.Late = 0 }),
	})
}
