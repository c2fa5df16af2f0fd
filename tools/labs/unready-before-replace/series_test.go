// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// TestSeries: off before the kill, off after it, and off, on and off; and histories without a series.
func TestSeries(t *testing.T) {
	h := func(f func(*round)) *history.History {
		return made(labkit.Short, inRound("", f))
	}
	of := func(s []Span, pod int) (out []Span) {
		for _, x := range s {
			if x.Pod == pod {
				out = append(out, x)
			}
		}
		return out
	}
	off := version{at(3), []string{"nobody"}}
	for _, test := range []struct {
		name   string
		change func(*round)
		want   []Span
	}{
		{"good", func(*round) {}, []Span{{0, 1.1, 0, false}, {5.1, 6.1, 0, false}}},
		{"late by less than a watch may be", func(r *round) { r.Endpoints[0].At = at(1.4) }, []Span{{0, 1.2, 0, false}, {5.1, 6.1, 0, false}}},
		{"off after the kill", func(r *round) { r.Endpoints[0] = off }, []Span{{0, 1.2, 0, false}, {1.2, 3, 0, true}, {5.1, 6.1, 0, false}}},
		{"on again before the new container", func(r *round) {
			r.Endpoints = []version{r.Endpoints[0], {at(2), r.Endpoints[1].Ready}, off, r.Endpoints[1]}
		}, []Span{{0, 1.1, 0, false}, {2, 3, 0, true}, {5.1, 6.1, 0, false}}},
	} {
		s, err := Series(h(test.change))
		if err != nil || !slices.Equal(of(s, 0), test.want) || len(of(s, pods-1)) == 0 {
			t.Errorf("%s: %v, %v", test.name, of(s, 0), err)
		}
	}
	for name, bad := range map[string]func(*round){
		"only rounds with a drain": func(r *round) { r.Drain = drain },
		"no Endpoints":             func(r *round) { r.Endpoints = nil },
		"a pod without a kill":     func(r *round) { r.Pods[3].Killed = time.Time{} },
		"no new container":         func(r *round) { r.Pods[3].Events = r.Pods[3].Events[:2] },
	} {
		if s, err := Series(h(bad)); err == nil {
			t.Errorf("%s: %v", name, s)
		}
	}
}
