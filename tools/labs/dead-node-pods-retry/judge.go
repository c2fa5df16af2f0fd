// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deadnodepodsretry

import (
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

const (
	oneRequest = "one request failed"
	newLeader  = "the leader changed"
)

// died is what became of the ready addresses on a node that died.
type died struct {
	When    string
	Refused int           // writes of pods' status
	Left    int           // ready addresses, -1 if they could not be read
	After   time.Duration // that took, from when the node was Unknown, or the next leader ran
}

var oracle = labkit.Oracle{
	Text: []string{
		"each time a write of a pod's status was refused; otherwise the trigger is missing",
		fmt.Sprintf("%v after the node is Unknown, or after the grace period under the next leader, no address of the node is ready; a ready address is the incident", bound),
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	all := history.Of[died](h)
	seen := map[string]died{}
	var facts []string
	for _, o := range all {
		seen[o.When] = o
		facts = append(facts, fmt.Sprintf("%s: %d writes refused; %d of %d addresses ready after %v", o.When, o.Refused, o.Left, pods, o.After.Round(time.Second)))
	}
	res := func() labkit.Outcome {
		for _, when := range []string{oneRequest, newLeader} {
			if o, ok := seen[when]; !ok || o.Refused == 0 {
				return labkit.InconclusiveBecause("%s: no write was refused: the trigger is missing", when)
			} else if o.Left < 0 {
				return labkit.InconclusiveBecause("%s: the Endpoints could not be read", when)
			}
		}
		for _, o := range all {
			if o.Left != 0 {
				return labkit.ReproducedBecause("%s: %d addresses of a dead node are ready after %v", o.When, o.Left, o.After.Round(time.Second))
			}
		}
		return labkit.AbsentBecause("no address of the dead node was ready after %v, nor %v after the next leader's start",
			seen[oneRequest].After.Round(time.Second), seen[newLeader].After.Round(time.Second))
	}()
	res.Facts = facts
	if res.Verdict == labkit.Absent {
		res.Measure("no address is ready after the node is Unknown", seen[oneRequest].After.Seconds(), "s")
		res.Measure("no address is ready after the next leader's start", seen[newLeader].After.Seconds(), "s")
	}
	return res
}
