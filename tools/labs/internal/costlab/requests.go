// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costlab

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/wait"
)

// Counts are how many a client made, by "VERB resource". Watches are left out: the server
// counts them when they end.
type Counts map[string]float64

// leases are the requests of leader election, whose number is a matter of time only.
const leases = "leader-election"

// counts reads the kube-apiserver's page of metrics. The label client is the user agent,
// which begins with the program's name and ends with the controller's, if there is one.
func counts(page metrics.Page, program string) Counts {
	out := Counts{}
	for _, m := range page["apiserver_request_count"].GetMetric() {
		agent, verb := metrics.Label(m, "client"), metrics.Label(m, "verb")
		if !strings.HasPrefix(agent, program+"/") || strings.HasPrefix(verb, "WATCH") || verb == "CONNECT" {
			continue
		}
		what := verb + " " + metrics.Label(m, "resource")
		if sub := metrics.Label(m, "subresource"); sub != "" {
			what += "/" + sub
		}
		if strings.HasSuffix(agent, "/"+leases) {
			what = leases
		}
		out[what] += m.GetCounter().GetValue()
	}
	return out
}

// ReadRequests are those that program made so far.
func ReadRequests(ctx context.Context, a *kube.APIServer, program string) (Counts, error) {
	var out Counts
	// The server may be busy.
	err := wait.Until(ctx, "the kube-apiserver's metrics", time.Minute, func(ctx context.Context) (bool, error) {
		page, err := metrics.GetTLS(ctx, a.URL+"/metrics", a.TLS)
		if err != nil {
			return false, err
		}
		if page["apiserver_request_count"] == nil {
			return false, fmt.Errorf("there is no apiserver_request_count")
		}
		out = counts(page, program)
		return true, nil
	})
	return out, err
}

// Since are those after before.
func (c Counts) Since(before Counts) Counts {
	out := Counts{}
	for k, n := range c {
		if n -= before[k]; n != 0 {
			out[k] = n
		}
	}
	return out
}

// All is their number.
func (c Counts) All() float64 {
	sum := 0.0
	for _, n := range c {
		sum += n
	}
	return sum
}

// Work is their number without those of leader election.
func (c Counts) Work() float64 { return c.All() - c[leases] }

// largest are the kinds of c, the most frequent first.
func (c Counts) largest() []string {
	return slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		if c[a] != c[b] {
			return cmp.Compare(c[b], c[a])
		}
		return strings.Compare(a, b)
	})
}

// String has all kinds.
func (c Counts) String() string {
	var parts []string
	for _, k := range c.largest() {
		parts = append(parts, fmt.Sprintf("%s %.0f", k, c[k]))
	}
	return strings.Join(parts, ", ")
}

// Kinds says how many requests of each kind a component's builds made in all their turns.
func Kinds(readings []Reading, component string) string {
	all, stock, ours := Counts{}, Counts{}, Counts{}
	for _, r := range readings {
		if r.Component != component {
			continue
		}
		for k, n := range r.Asked {
			all[k] += n
			if r.Who == Ours {
				ours[k] += n
			} else {
				stock[k] += n
			}
		}
	}
	var parts []string
	for _, k := range all.largest() {
		parts = append(parts, fmt.Sprintf("%s %.0f and %.0f", k, stock[k], ours[k]))
	}
	return "requests of " + component + " in all turns, stock and ours: " + strings.Join(parts, ", ")
}
