// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package orphanedvolumedirs

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "orphaned-volume-dirs")
	good := []any{found{"start", 4}, found{"end", 3}, left{Pod: empty}, kept[beside], kept[bound], kept[boundNone]}
	of := func(change map[int]any) *history.History {
		all := append([]any{}, good...)
		for i, o := range change {
			all[i] = o
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, all...)
	}
	judgetest.Cut(t, l, of(nil))
	judgetest.Judge(t, l, of(nil), labkit.Absent)
	there := left{Pod: empty, Dir: true, Volumes: 1}
	judgetest.Judge(t, l, of(map[int]any{1: found{"end", 4}, 2: there}), labkit.Reproduced)
	for i, lost := range map[int]any{3: left{Pod: beside, Dir: true, Volumes: 1, Data: data}, 4: left{Pod: bound, Dir: true, Volumes: 1, Mounted: true},
		5: left{Pod: boundNone, Dir: true, Volumes: 1}} {
		judgetest.Judge(t, l, of(map[int]any{i: lost}), labkit.Reproduced)
	}
	judgetest.Judge(t, l, of(map[int]any{2: there}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(map[int]any{1: found{"end", 4}}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(map[int]any{0: found{"start", 3}}), labkit.Inconclusive)
}

func TestSaid(t *testing.T) {
	line := func(n string) string {
		return `E1127 12:00:00.000000       1 kubelet_volumes.go:133] Orphaned pod "0-empty" found, but volume paths are still present on disk : There were a total of ` + n + " errors similar to this. Turn up verbosity to see them.\n"
	}
	log := line("4") + "else\n" + line("3")
	for from, want := range map[int]int{0: 3, len(line("4")): 3, len(log): 0, len(log) + 5: 0} {
		if n, end := said(log, from); n != want || end != len(log) {
			t.Errorf("from %d: %d, %d", from, n, end)
		}
	}
}
