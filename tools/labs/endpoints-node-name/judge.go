// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsnodename

import (
	"fmt"
	"slices"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// renamed is what the Endpoints are after a node was renamed.
type renamed struct {
	After time.Duration // since the new pod was ready
	Ready []string      // the pods of the ready addresses
	// Refused are the updates that the API server answered with 422.
	Refused int
	// Kept: UID and somebody else's annotation are those of before.
	Kept bool
}

// later is which addresses are ready after one more pod came.
type later struct{ Ready []string }

var oracle = labkit.Oracle{
	Text: []string{
		"the API server refused an update of the Endpoints with 422; otherwise the trigger is missing",
		"within 10 s the ready addresses are those of new and other, and within 10 s after the pod more is ready also its address; anything else is the incident",
		"the Endpoints are the same object and still have the annotation",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	first, then := history.One[renamed](h), history.One[later](h)
	res := func() labkit.Outcome {
		switch {
		case first.Refused == 0:
			return labkit.InconclusiveBecause("the API server refused no update: the trigger is missing")
		case !slices.Equal(first.Ready, []string{"new", "other"}):
			return labkit.ReproducedBecause("%v after the new pod was ready, the ready addresses are those of %v", first.After.Round(time.Second), first.Ready)
		case !slices.Equal(then.Ready, []string{"more", "new", "other"}):
			return labkit.ReproducedBecause("after the pod more was ready, the ready addresses are those of %v", then.Ready)
		case !first.Kept:
			return labkit.ReproducedBecause("the annotation, or the object itself, is lost")
		}
		return labkit.AbsentBecause("the new pod's address was ready after %v", first.After.Round(time.Millisecond))
	}()
	res.Facts = []string{fmt.Sprintf("%d updates of the Endpoints were refused with 422", first.Refused)}
	if res.Verdict == labkit.Absent {
		res.Measure("the new pod's address is ready after", first.After.Seconds(), "s")
	}
	return res
}
