// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsnodename

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history in which all went well, but for the change.
func made(change judgetest.Change) *history.History {
	return history.Make(history.Begin{Lab: "endpoints-node-name", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, change.Of([]any{
		renamed{After: 40 * time.Millisecond, Ready: []string{"new", "other"}, Refused: 1, Kept: true},
		later{Ready: []string{"more", "new", "other"}},
	})...)
}

func in(f func(*renamed)) judgetest.Change {
	return judgetest.Where(func(renamed) bool { return true }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-node-name")
	judgetest.Cut(t, l, made(nil))
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"those of [gone other]":        in(func(o *renamed) { o.Ready = []string{"gone", "other"} }),
		"those of []":                  in(func(o *renamed) { o.Ready = nil }),
		"after the pod more was ready": judgetest.As(later{Ready: []string{"new", "other"}}),
		"annotation":                   in(func(o *renamed) { o.Kept = false }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"the trigger is missing": in(func(o *renamed) { o.Refused = 0 }),
	})
}
