// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"slices"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// writes are those of Endpoints of one size: how long each took in a namespace that has
// opted in, and in one that has not.
type writes struct {
	Addresses     int
	Moved         bool // the webhook moves an address
	With, Without []time.Duration
	Wrong         string // what was stored otherwise than it should, the first time
	GivenUp       int    // writes that are not in Wrong, because they took longer than slower
}

// memory is that of endpoints-rules, in bytes: now, the most so far, and what its pod may
// take.
type memory struct {
	Pods                  int
	Resident, Most, Limit int64
}

// slower is the most that the webhook may add to a write: the time that a review may take.
const slower = time.Second

var costOracle = labkit.Oracle{
	Text: []string{
		"each write is stored as the rules want it where the namespace has opted in, and as it came where it has not",
		fmt.Sprintf("the median write of a size takes at most %v longer with the webhook", slower),
		"endpoints-rules never took more memory than the manifest lets its container have",
	},
	Judge: judgeCost,
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

func (w writes) size() string {
	if w.Moved {
		return fmt.Sprintf("%d addresses, one moved", w.Addresses)
	}
	return fmt.Sprintf("%d addresses, none moved", w.Addresses)
}

// added is what the webhook adds to the median write.
func (w writes) added() time.Duration { return median(w.With) - median(w.Without) }

func (w writes) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("%s: median of %d writes %v with the webhook, %v without; the slowest %v and %v",
		w.size(), len(w.With), ms(median(w.With)), ms(median(w.Without)), ms(slices.Max(append(w.With[:len(w.With):len(w.With)], 0))), ms(slices.Max(append(w.Without[:len(w.Without):len(w.Without)], 0))))
}

func (m memory) String() string {
	return fmt.Sprintf("memory with %d pods: %d MiB, %d MiB at most; the container may have %d MiB", m.Pods, m.Resident>>20, m.Most>>20, m.Limit>>20)
}

func judgeCost(h *history.History) labkit.Result {
	all, mem := history.Of[writes](h), history.Of[memory](h)
	res := costVerdict(h, all, mem)
	for _, w := range all {
		res.Facts = append(res.Facts, w.String())
		if len(w.With) > 0 && median(w.Without) > 0 {
			res.Measure("median write, "+w.size(), float64(median(w.With).Microseconds())/1000, "ms")
			res.Measure("median write without webhook, "+w.size(), float64(median(w.Without).Microseconds())/1000, "ms")
		}
	}
	for _, m := range mem {
		res.Facts = append(res.Facts, m.String())
		res.Measure("most memory of endpoints-rules", float64(m.Most>>20), "MiB")
	}
	return res
}

func costVerdict(h *history.History, all []writes, mem []memory) labkit.Result {
	for _, w := range all {
		if w.Wrong != "" {
			return labkit.ReproducedBecause("%s: %s", w.size(), w.Wrong)
		}
		if len(w.Without) > 0 && w.added() > slower {
			return labkit.ReproducedBecause("%s: the webhook adds %v to the median write", w.size(), w.added().Round(time.Millisecond))
		}
	}
	for _, m := range mem {
		if m.Limit > 0 && m.Most > m.Limit {
			return labkit.ReproducedBecause("%v", m)
		}
	}
	n := pairs(labkit.Profile(h.Profile))
	if len(all) != 2*len(costSizes) {
		return labkit.InconclusiveBecause("%d kinds of writes, want %d", len(all), 2*len(costSizes))
	}
	for _, w := range all {
		if w.GivenUp > 0 {
			return labkit.InconclusiveBecause("%s: %d writes took more than %v and were not stored as the rules want it: the program gives up a review that takes longer, and this computer may have had other work", w.size(), w.GivenUp, slower)
		}
		if len(w.With) != n || len(w.Without) != n {
			return labkit.InconclusiveBecause("%s: %d writes with the webhook and %d without, want %d", w.size(), len(w.With), len(w.Without), n)
		}
	}
	if len(mem) != 1 || mem[0].Limit == 0 || mem[0].Most == 0 {
		return labkit.InconclusiveBecause("the program's memory or its limit was not read")
	}
	most := slices.MaxFunc(all, func(a, b writes) int { return int(a.added() - b.added()) })
	return labkit.AbsentBecause("the webhook adds %v at most to the median write, with %s; %v", most.added().Round(time.Millisecond), most.size(), mem[0])
}
