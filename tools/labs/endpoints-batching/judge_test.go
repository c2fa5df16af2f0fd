// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsbatching

import (
	"strings"
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

// made is a history in which all went well. change may replace an observation.
func made(p labkit.Profile, change func(o any) any) *history.History {
	all := []any{program{HasFlag: true}}
	for round := range rounds(p) {
		all = append(all, batch{"", round, took, some(pods, 100*time.Millisecond, took), pods, 0},
			batch{"0", round, took, some(pods, 100*time.Millisecond, took), pods, 1},
			batch{"1s", round, took, some(3, 1100*time.Millisecond, 3*time.Second), 3, 3},
			batch{"5s", round, took, some(1, 5100*time.Millisecond, 0), 1, 1},
			killed{round, pods, pods / 2})
	}
	all = append(all, configz{`{"ConcurrentEndpointSyncs":5}`}, serviceChanged{20 * time.Millisecond}, podDeleted{5050 * time.Millisecond},
		negative{2, "the period -1s is negative"})
	if change != nil {
		for i := range all {
			all[i] = change(all[i])
		}
	}
	return history.Make(history.Begin{Lab: "endpoints-batching", Variant: string(labkit.Ours), Profile: string(p)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, "endpoints-batching")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, made(p, nil))
	}
	for why, c := range map[string]struct {
		change func(any) any
		want   labkit.Verdict
	}{
		"period 0 batches":                 {inBatch("0", func(b *batch) { b.Updates = b.Updates[:2] }), labkit.Reproduced},
		"metrics without a period":         {inBatch("0", func(b *batch) { b.Retries = pods }), labkit.Reproduced},
		"expected at most":                 {inBatch("1s", func(b *batch) { b.Updates = some(pods, 1100*time.Millisecond, took) }), labkit.Reproduced},
		"the first after 500ms":            {inBatch("1s", func(b *batch) { b.Updates[0] = 500 * time.Millisecond }), labkit.Reproduced},
		"the last after 9s":                {inBatch("1s", func(b *batch) { b.Updates[2] = 9 * time.Second }), labkit.Reproduced},
		"0 updates":                        {inBatch("5s", func(b *batch) { b.Updates = nil }), labkit.Reproduced},
		"the first after 4.9s":             {inBatch("5s", func(b *batch) { b.Updates[0] = 4900 * time.Millisecond }), labkit.Reproduced},
		"each wait counts as a retry":      {inBatch("5s", func(b *batch) { b.Retries = 0 }), labkit.Reproduced},
		"the trigger is missing":           {inBatch("", func(b *batch) { b.Updates = b.Updates[:pods/2] }), labkit.Inconclusive},
		"too slow to judge":                {inBatch("5s", func(b *batch) { b.Took = slow + 1 }), labkit.Inconclusive},
		"a field that stock's has not":     {as(configz{`{"ConcurrentEndpointSyncs":5,"EndpointUpdatesBatchPeriod":5}`}), labkit.Reproduced},
		"/configz does not show":           {as(configz{"{}"}), labkit.Inconclusive},
		"while a pod's change waited":      {as(serviceChanged{4 * time.Second}), labkit.Reproduced},
		"a deleted pod left after 100ms":   {as(podDeleted{100 * time.Millisecond}), labkit.Reproduced},
		"a change that waited is lost":     {as(killed{0, pods, pods}), labkit.Reproduced},
		"no change waited":                 {as(killed{0, pods - 1, pods / 2}), labkit.Inconclusive},
		"ends with status 0":               {as(negative{0, "the period -1s is negative"}), labkit.Reproduced},
		"ends with status 2: unknown flag": {as(negative{2, "unknown flag"}), labkit.Reproduced},
		"no flag that changes it":          {as(program{}), labkit.Reproduced},
	} {
		if res := judgetest.Judge(t, l, made(labkit.Short, c.change), c.want); !strings.Contains(res.Why, why) {
			t.Errorf("%q, want %q", res.Why, why)
		}
	}
	// A program without the flag needs no more than that; nor is it enough without updates.
	b := batch{"", 0, took, some(pods, 100*time.Millisecond, took), pods, 0}
	begin := history.Begin{Lab: l.Name, Variant: string(labkit.Stock), Profile: string(labkit.Short)}
	judgetest.Judge(t, l, history.Make(begin, program{}, b), labkit.Reproduced)
	judgetest.Judge(t, l, history.Make(begin, program{}), labkit.Inconclusive)
	judgetest.Judge(t, l, history.Make(begin, b), labkit.Inconclusive)
}

// inBatch changes the batches with that period.
func inBatch(period string, f func(*batch)) func(any) any {
	return func(o any) any {
		if b, ok := o.(batch); ok && b.Period == period {
			f(&b)
			return b
		}
		return o
	}
}

// as puts with in the place of the observation of its type.
func as[T any](with T) func(any) any {
	return func(o any) any {
		if _, ok := o.(T); ok {
			return with
		}
		return o
	}
}
