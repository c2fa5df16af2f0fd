// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"fmt"
	"slices"

	"holdfast/tools/labkit/history"
)

// Span is a time, in seconds after all images were changed, in which the address of a pod was ready in
// Endpoints. Down is set from the kill of the pod's old container until the new one was ready.
type Span struct {
	Seconds, Until float64
	Pod            int
	Down           bool
}

// Series are the spans of the first round of a run, pod by pod, until 1 s after the last event. A span
// after a kill counts if it is longer than a watch may be late.
func Series(h *history.History) ([]Span, error) {
	rounds := history.Of[round](h)
	if len(rounds) == 0 || rounds[0].Drain != "" || len(rounds[0].Endpoints) == 0 {
		return nil, fmt.Errorf("lab %s, %s: the history has no round with Endpoints before the one with a drain", h.Lab, h.Variant)
	}
	r := rounds[0]
	since := func(v version) float64 { return v.At.Sub(r.Began).Seconds() }
	end := since(r.Endpoints[len(r.Endpoints)-1]) + 1
	var out []Span
	for i, p := range r.Pods {
		up := slices.IndexFunc(p.Events, func(e podEvent) bool { return e.Ready && e.Container != p.Was })
		if p.Killed.IsZero() || up < 0 {
			return nil, fmt.Errorf("lab %s, %s: pod %s has no kill, or no new container that is ready", h.Lab, h.Variant, p.Name)
		}
		killed, ready := p.Killed.Sub(r.Began).Seconds(), p.Events[up].At.Sub(r.Began).Seconds()
		in := func(from, to float64) {
			// What is before the kill, between it and the new container, and after that.
			for part, edge := range [][2]float64{{from, min(to, killed)}, {max(from, killed), min(to, ready)}, {max(from, ready), to}} {
				down := part == 1
				if edge[1] > edge[0] && (!down || edge[1]-edge[0] > lag.Seconds()) {
					out = append(out, Span{edge[0], edge[1], i, down})
				}
			}
		}
		from, was := 0.0, true
		for _, v := range r.Endpoints {
			is := slices.Contains(v.Ready, p.Name)
			if was && !is {
				in(from, since(v))
			} else if !was && is {
				from = since(v)
			}
			was = is
		}
		if was {
			in(from, end)
		}
	}
	return out, nil
}
