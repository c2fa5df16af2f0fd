// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func madeCost(p labkit.Profile, c judgetest.Change) *history.History {
	var list []any
	for _, off := range []bool{true, false} {
		for _, n := range costSizes {
			list = append(list, writes{Addresses: n, Moved: off, With: slices.Repeat([]time.Duration{at(0.9)}, pairs(p)), Without: slices.Repeat([]time.Duration{at(0.8)}, pairs(p))})
		}
	}
	list = append(list, memory{Pods: crowd, Resident: 100 << 20, Most: 200 << 20, Limit: 1 << 30})
	return history.Make(history.Begin{Lab: "endpoints-rules-cost", Variant: string(labkit.Ours), Profile: string(p)}, c.Of(list)...)
}

func TestJudgeCost(t *testing.T) {
	l := judgetest.Lab(t, "endpoints-rules-cost")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, madeCost(p, nil))
	}
	in := func(c judgetest.Change) *history.History { return madeCost(labkit.Short, c) }
	large := func(f func(*writes)) judgetest.Change {
		return judgetest.Where(func(w writes) bool { return w.Addresses == 5000 && w.Moved }, f)
	}
	judgetest.Judged(t, l, labkit.Reproduced, in, map[string]judgetest.Change{
		"5000 addresses, one moved: namespace other: 1":                large(func(w *writes) { w.Wrong = "namespace other: 1 addresses" }),
		"5000 addresses, one moved: the webhook adds 1.2s to the medi": large(func(w *writes) { w.With = slices.Repeat([]time.Duration{at(2)}, len(w.With)) }),
		"adds 1.2s": large(func(w *writes) { w.With, w.GivenUp = slices.Repeat([]time.Duration{at(2)}, len(w.With)), len(w.With) }),
		"1025 MiB at most; the container may have 1024 MiB": judgetest.Where(all[memory], func(m *memory) { m.Most = 1025 << 20 }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, in, map[string]judgetest.Change{
		"5 kinds of writes":                                             judgetest.Without(func(w writes) bool { return w.Addresses == 50 && w.Moved }),
		"19 writes with the webhook and 20":                             large(func(w *writes) { w.With = w.With[1:] }),
		"5000 addresses, one moved: 2 writes took more than 1s and wer": large(func(w *writes) { w.GivenUp = 2 }),
		"limit was not read":                                            judgetest.Where(all[memory], func(m *memory) { m.Limit = 0 }),
	})
	judgetest.Judged(t, l, labkit.Absent, in, map[string]judgetest.Change{
		"adds 300ms at most to the median write, with 5000 addresses, one moved; memory with 10000 pods: 100 MiB": large(func(w *writes) {
			w.With = append(slices.Repeat([]time.Duration{at(1.1)}, len(w.With)-1), at(9))
		}),
	})
}

func TestMemoryLimit(t *testing.T) {
	text := `{"spec":{"template":{"spec":{"containers":[{"name":"breaker","resources":{"limits":{"memory":"1Mi"}}},{"name":"endpoints-rules","resources":{"limits":{"memory":"1Gi"}}}]}}}}`
	if got, err := memoryLimit([]byte(text)); err != nil || got != 1<<30 {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{`{}`, `{"spec":{"template":{"spec":{"containers":[{"name":"endpoints-rules"}]}}}}`} {
		if got, err := memoryLimit([]byte(text)); err == nil {
			t.Errorf("%s: %d", text, got)
		}
	}
}
