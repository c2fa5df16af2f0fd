// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kmemoff

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "kmem-off")
	of := func(i int, o any) *history.History {
		all := []any{seen{"guaranteed", 0, 1, true}, seen{"burstable", 0, 1, true}, seen{"free", 0, 0, false}, restarted{Kept: 6}}
		if o != nil {
			all[i] = o
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, all...)
	}
	judgetest.Cut(t, l, of(0, nil))
	judgetest.Judge(t, l, of(0, nil), labkit.Absent)
	for i, bad := range map[int]any{0: seen{"guaranteed", 2, 1, true}, 1: seen{"burstable", 1, 0, true}, 3: restarted{Kept: 6, KernelMemory: 1}} {
		judgetest.Judge(t, l, of(i, bad), labkit.Reproduced)
	}
	judgetest.Judge(t, l, of(3, restarted{Kept: 5, Gone: 1}), labkit.Reproduced)
	for i, blind := range map[int]any{0: seen{"guaranteed", 0, 0, true}, 1: seen{"burstable", 0, 1, false}, 3: restarted{}} {
		judgetest.Judge(t, l, of(i, blind), labkit.Inconclusive)
	}
}
