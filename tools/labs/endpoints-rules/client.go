// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"slices"
	"time"
)

// update is one version of the Endpoints as a watcher saw it.
type update struct {
	at    time.Time
	ready map[string]bool // by pods
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
// balancer, several times perhaps. At the start, off, the release platform has
// switched all pods off there; after that the client makes the load balancer equal
// to the Endpoints. updates are sorted; those before off are of no interest but
// the last.
func switchedOn(updates []update, off time.Time, w window) map[string][]time.Time {
	var acts []time.Time
	var due time.Time
	for _, u := range updates {
		if u.at.Before(off) {
			continue
		}
		if !due.IsZero() && !due.After(u.at) {
			acts = append(acts, due)
			due = time.Time{}
		}
		if due.IsZero() || w == trailing {
			due = u.at.Add(gather)
		}
	}
	if !due.IsZero() {
		acts = append(acts, due)
	}
	on, out := map[string]bool{}, map[string][]time.Time{}
	for _, at := range acts {
		i := slices.IndexFunc(updates, func(u update) bool { return u.at.After(at) })
		if i < 0 {
			i = len(updates)
		}
		now := updates[i-1].ready
		for pod := range now {
			if !on[pod] {
				out[pod] = append(out[pod], at)
			}
		}
		on = now
	}
	return out
}

// broken are the pods that the client switches on while their old container is
// there: until gone.
func broken(updates []update, off time.Time, w window, gone map[string]time.Time) []string {
	var out []string
	for pod, times := range switchedOn(updates, off, w) {
		if slices.ContainsFunc(times, func(t time.Time) bool { return t.Before(gone[pod]) }) {
			out = append(out, pod)
		}
	}
	slices.Sort(out)
	return out
}
