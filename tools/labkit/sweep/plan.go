// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sweep kills components of a run at random points, to see that a lab's verdict
// does not become wrong by it. What it kills comes back by itself, as under a supervisor
// like systemd.
package sweep

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// Seen is a component that a run without a kill had.
type Seen struct {
	Component string `json:"component"` // etcd, kubelet, …
	Process   string `json:"process"`   // its name in the run
	// From is when it started, in seconds since the kill test began; 0 if it was there.
	From float64 `json:"from"`
}

// Kill is one kill -9 of a plan.
type Kill struct {
	Component string `json:"component"`
	Process   string `json:"process"`
	// At is when, in seconds since the kill test began; Pause the seconds until it starts
	// again.
	At    float64 `json:"at"`
	Pause float64 `json:"pause"`
}

func (k Kill) String() string {
	return fmt.Sprintf("%s at %.1f s, back after %.1f s", k.Process, k.At, k.Pause)
}

// A Chance is what a plan depends on, besides what the run without a kill had.
type Chance struct {
	// Of names the run, a lab and its variant.
	Of   string
	Seed uint64
	// Attempt is another point in time for the same component, after one at which it did
	// not run.
	Attempt int
}

// Plan is a pure function: n kills of a run that had these components and took window
// seconds. Seeds that follow each other take the kinds of components in turn, in an order
// of their own for each run, so that few seeds meet all of them. The points are uniform
// over the time in which the component was there. only, if it is not "", is the kind or the
// name of the process that is killed.
func Plan(c Chance, n int, only string, seen []Seen, window float64) []Kill {
	of := map[string][]Seen{}
	var kinds []string
	for _, s := range seen {
		if only != "" && only != s.Component && only != s.Process || s.From >= window {
			continue
		}
		if of[s.Component] == nil {
			kinds = append(kinds, s.Component)
		}
		of[s.Component] = append(of[s.Component], s)
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.Sort(kinds)
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.Of))
	nth := max(c.Seed, 1) - 1 // seeds are counted from 1 on
	order := rand.New(rand.NewPCG(nth/uint64(len(kinds)), h.Sum64()))
	order.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	rng := rand.New(rand.NewPCG(c.Seed, h.Sum64()+uint64(c.Attempt)))
	var kills []Kill
	for i := range n {
		all := of[kinds[(nth+uint64(i))%uint64(len(kinds))]]
		s := all[rng.IntN(len(all))]
		at := s.From + rng.Float64()*(window-s.From)
		kills = append(kills, Kill{Component: s.Component, Process: s.Process, At: round(at), Pause: round(0.2 + 0.8*rng.Float64())})
	}
	slices.SortStableFunc(kills, func(a, b Kill) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return kills
}

// round is to milliseconds.
func round(seconds float64) float64 { return float64(int64(seconds*1000)) / 1000 }
