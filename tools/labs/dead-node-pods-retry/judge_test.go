// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deadnodepodsretry

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history in which all went well, but for the change.
func made(change judgetest.Change) *history.History {
	return history.Make(history.Begin{Lab: "dead-node-pods-retry", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, change.Of([]any{
		died{When: oneRequest, Refused: 1, After: time.Second},
		died{When: newLeader, Refused: pods, After: 14 * time.Second},
	})...)
}

func in(when string, f func(*died)) judgetest.Change {
	return judgetest.Where(func(o died) bool { return o.When == when }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "dead-node-pods-retry")
	judgetest.Cut(t, l, made(nil))
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"one request failed: 1 addresses": in(oneRequest, func(o *died) { o.Left = 1 }),
		"the leader changed: 3 addresses": in(newLeader, func(o *died) { o.Left = pods }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"one request failed: no write": in(oneRequest, func(o *died) { o.Refused = 0 }),
		"could not be read":            in(oneRequest, func(o *died) { o.Left = -1 }),
		"the leader changed: no write": in(newLeader, func(o *died) { o.Refused = 0 }),
	})
}
