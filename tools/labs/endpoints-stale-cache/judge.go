// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsstalecache

import (
	"fmt"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// state is Endpoints: whether they exist, and the number of their addresses.
type state struct {
	Exists          bool
	Ready, NotReady int
}

func (s state) String() string {
	if !s.Exists {
		return "no Endpoints"
	}
	return fmt.Sprintf("%d ready addresses and %d that are not", s.Ready, s.NotReady)
}

// happened is what the Endpoints were while the controller's cache was behind, and at the end.
type happened struct {
	Case          string
	Before, After state
}

var oracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("in each case the ready pod's address was missing from the ready addresses of its Service; otherwise the trigger is missing. If it is still missing %v later, that is the incident", bound),
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	all := history.Of[happened](h)
	seen := map[string]happened{}
	var facts []string
	for _, o := range all {
		seen[o.Case] = o
		facts = append(facts, fmt.Sprintf("%s: %v, then %v", o.Case, o.Before, o.After))
	}
	res := func() labkit.Outcome {
		for _, c := range cases {
			if o, ok := seen[c]; !ok || o.Before.Ready != 0 {
				return labkit.InconclusiveBecause("%s: the address was ready all the time: the trigger is missing", c)
			}
		}
		for _, o := range all {
			if o.After.Ready != 1 {
				return labkit.ReproducedBecause("%s: the pod is ready, but its Service has %v after %v", o.Case, o.After, bound)
			}
		}
		return labkit.AbsentBecause("in each of %d cases the Service has its address again", len(all))
	}()
	res.Facts = facts
	return res
}
