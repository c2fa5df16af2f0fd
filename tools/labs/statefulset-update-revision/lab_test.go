// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsetupdaterevision

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// of is a history whose last rollout is r, the others made 8 pods each.
func of(r rolled) *history.History {
	var all []any
	for range rollouts - 1 {
		all = append(all, rolled{Made: replicas})
	}
	return history.Make(history.Begin{Lab: "statefulset-update-revision", Variant: "ours", Profile: "short"}, append(all, r)...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "statefulset-update-revision")
	judgetest.Cut(t, l, of(rolled{Made: replicas}))
	for r, want := range map[rolled]labkit.Verdict{
		{Made: replicas + 1, Old: 1}: labkit.Reproduced,
		{Made: replicas - 1}:         labkit.Inconclusive,
		{Made: replicas, Gaps: 1}:    labkit.Inconclusive,
		{Made: replicas + 9, Old: 9}: labkit.Reproduced,
	} {
		judgetest.Judge(t, l, of(r), want)
	}
}
