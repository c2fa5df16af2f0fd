// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsbatching

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// some is that many updates between two times.
func some(n int, first, last time.Duration) []time.Duration {
	out := []time.Duration{first}
	for i := 1; i < n; i++ {
		out = append(out, first+(last-first)*time.Duration(i)/time.Duration(n-1))
	}
	return out
}

const took = 2 * time.Second

// made is a history in which all went well, but for the change.
func made(p labkit.Profile, change judgetest.Change) *history.History {
	all := []any{program{HasFlag: true}}
	for round := range rounds(p) {
		all = append(all, batch{"", round, took, some(pods, 100*time.Millisecond, took), pods, 0},
			batch{"0", round, took, some(pods, 100*time.Millisecond, took), pods, 1},
			batch{"1s", round, took, some(3, 1100*time.Millisecond, 3*time.Second), 3, 3},
			batch{"5s", round, took, some(1, 5100*time.Millisecond, 0), 1, 1},
			killed{round, pods, pods / 2})
	}
	all = append(all, configz{`{"ConcurrentEndpointSyncs":5}`}, serviceChanged{20 * time.Millisecond}, podDeleted{5050 * time.Millisecond},
		negative{2, 2, "the period -1s is negative"})
	return history.Make(history.Begin{Lab: "endpoints-batching", Variant: string(labkit.Ours), Profile: string(p)}, change.Of(all)...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-batching")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, made(p, nil))
	}
	short := func(c judgetest.Change) *history.History { return made(labkit.Short, c) }
	judgetest.Judged(t, l, labkit.Reproduced, short, map[string]judgetest.Change{
		"period 0 batches":                 inBatch("0", func(b *batch) { b.Updates = b.Updates[:2] }),
		"metrics without a period":         inBatch("0", func(b *batch) { b.Retries = pods }),
		"expected at most":                 inBatch("1s", func(b *batch) { b.Updates = some(pods, 1100*time.Millisecond, took) }),
		"the first after 500ms":            inBatch("1s", func(b *batch) { b.Updates[0] = 500 * time.Millisecond }),
		"0 updates":                        inBatch("5s", func(b *batch) { b.Updates = nil }),
		"the first after 4.9s":             inBatch("5s", func(b *batch) { b.Updates[0] = 4900 * time.Millisecond }),
		"each wait counts as a retry":      inBatch("5s", func(b *batch) { b.Retries = 0 }),
		"a field that stock does not have": judgetest.As(configz{`{"ConcurrentEndpointSyncs":5,"EndpointUpdatesBatchPeriod":5}`}),
		"while a pod's change waited":      judgetest.As(serviceChanged{4 * time.Second}),
		"a deleted pod left after 100ms":   judgetest.As(podDeleted{100 * time.Millisecond}),
		"a change that waited is lost":     judgetest.As(killed{0, pods, pods}),
		"ends with status 0":               judgetest.As(negative{0, 0, "the period -1s is negative"}),
		"ends with status 3":               judgetest.As(negative{3, 1, "the period -1s is negative"}),
		"ends with status 2: unknown flag": judgetest.As(negative{2, 2, "unknown flag"}),
		"the program has no flag":          judgetest.As(program{}),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, short, map[string]judgetest.Change{
		"the trigger is missing": inBatch("", func(b *batch) { b.Updates = b.Updates[:pods/2] }),
		"too slow to judge":      inBatch("5s", func(b *batch) { b.Took = slow + 1 }),
		"/configz does not show": judgetest.As(configz{"{}"}),
		"the last after 9s":      inBatch("1s", func(b *batch) { b.Updates[2] = 9 * time.Second }),
		"the last after 8s":      inBatch("5s", func(b *batch) { b.Updates[0] = 8 * time.Second }),
		"took 2s while":          judgetest.As(serviceChanged{2 * time.Second}),
		"pod left after 7s":      judgetest.As(podDeleted{7 * time.Second}),
		"no change waited":       judgetest.As(killed{0, pods - 1, pods / 2}),
	})
	// One batch of several is enough, whatever the one with the most updates says.
	judgetest.Judge(t, l, made(labkit.Long, judgetest.Where(func(b batch) bool { return b.Period == "1s" && b.Round == 1 },
		func(b *batch) { b.Updates = some(2, 500*time.Millisecond, took) })), labkit.Reproduced)
	// A program without the flag needs no more than that; nor is it enough without updates.
	b := batch{"", 0, took, some(pods, 100*time.Millisecond, took), pods, 0}
	begin := history.Begin{Lab: l.Name, Variant: string(labkit.Stock), Profile: string(labkit.Short)}
	judgetest.Judge(t, l, history.Make(begin, program{}, b), labkit.Reproduced)
	judgetest.Judge(t, l, history.Make(begin, program{}), labkit.Inconclusive)
	judgetest.Judge(t, l, history.Make(begin, b), labkit.Inconclusive)
}

// inBatch changes the batches with that period.
func inBatch(period string, f func(*batch)) judgetest.Change {
	return judgetest.Where(func(b batch) bool { return b.Period == period }, f)
}
