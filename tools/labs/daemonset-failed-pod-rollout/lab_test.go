// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonsetfailedpodrollout

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func of(u updated, d tookDown) *history.History {
	return history.Make(history.Begin{Lab: "daemonset-failed-pod-rollout", Variant: "ours", Profile: "short"}, u, d)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "daemonset-failed-pod-rollout")
	good, took := updated{Failed: 3, Nodes: 2}, tookDown{Made: 3, Most: 1, Last: 1}
	judgetest.Cut(t, l, of(good, took))
	for _, c := range []struct {
		u    updated
		d    tookDown
		want labkit.Verdict
	}{
		{updated{Failed: 3}, tookDown{Made: 3}, labkit.Reproduced},
		{updated{Failed: 3, Nodes: 1}, took, labkit.Reproduced},
		{good, tookDown{Made: 3, Most: 2, Last: 2}, labkit.Reproduced},
		{updated{Failed: 2, Nodes: 2}, took, labkit.Inconclusive},
		{good, tookDown{Made: 2, Most: 1, Last: 1}, labkit.Inconclusive},
		{good, tookDown{Made: 3, Most: 1, Last: 1, Gaps: 1}, labkit.Inconclusive},
		{good, tookDown{Made: 3}, labkit.Inconclusive},
	} {
		judgetest.Judge(t, l, of(c.u, c.d), c.want)
	}
}
