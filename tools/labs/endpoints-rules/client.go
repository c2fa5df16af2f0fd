// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"slices"
	"time"
)

// update is one version of the Endpoints as a watcher saw it.
type update struct {
	At    time.Duration // since the first image changed
	Ready []string      // by pods
}

// window is how the report's client gathers updates.
type window string

const (
	// fixed: it acts a while after the first update since it acted last.
	fixed window = "fixed"
	// trailing: it acts when there was no update for a while.
	trailing window = "trailing"
)

// gather is how long that is.
const gather = 2 * time.Second

// switchedOn is when the client of the incident switches each pod on at the load
// balancer, several times perhaps. At the start the release platform has switched all
// pods off there; after that the client makes the load balancer equal to the Endpoints.
// updates are sorted.
func switchedOn(updates []update, w window) map[string][]time.Duration {
	var acts []time.Duration
	due, waits := time.Duration(0), false
	for _, u := range updates {
		if waits && due <= u.At {
			acts = append(acts, due)
			waits = false
		}
		if !waits || w == trailing {
			due, waits = u.At+gather, true
		}
	}
	if waits {
		acts = append(acts, due)
	}
	var on []string
	out := map[string][]time.Duration{}
	for _, at := range acts {
		i := slices.IndexFunc(updates, func(u update) bool { return u.At > at })
		if i < 0 {
			i = len(updates)
		}
		now := updates[i-1].Ready
		for _, pod := range now {
			if !slices.Contains(on, pod) {
				out[pod] = append(out[pod], at)
			}
		}
		on = now
	}
	return out
}

// broken are the pods that the client switches on while their old container is there:
// until gone.
func broken(updates []update, w window, gone map[string]time.Duration) []string {
	var out []string
	for pod, times := range switchedOn(updates, w) {
		if slices.ContainsFunc(times, func(t time.Duration) bool { return t < gone[pod] }) {
			out = append(out, pod)
		}
	}
	slices.Sort(out)
	return out
}
