// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package readinessacrossrestart

import (
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labs/internal/kubeletlab"
)

// restarted is what was published around one restart.
type restarted struct {
	Round int
	What  string
	Seen  kubeletlab.Published
	// Kept is how many containers ours says that it kept the readiness of; it must
	// have been MustKeep.
	Kept     float64
	MustKeep int
}

// requests are those to addresses that left Endpoints a second ago at most, and those
// of the control, which must fail.
type requests struct{ Load, Control load.Report }

// everReady is when the pod that never is ready was published as ready, of how many
// events.
type everReady struct {
	Events int
	At     []string
}

// fast is what became of a failing pod in restarts that come faster than its probe's
// threshold: after how long it was published as not ready, or For how long it was not.
type fast struct {
	Starts             int
	NotReadyAfter, For time.Duration
}

// wentAway is how many containers the kubelet gave up the readiness of after a time
// without it and the controller manager.
type wentAway struct {
	For       time.Duration
	Withdrawn float64
}

var oracle = labkit.Oracle{
	Text: []string{
		"no MODIFIED event with Ready=False, no address that left Endpoints, no failed request; the changed pods must have left",
		"control: requests to the pod whose container is replaced must fail if they continue for a minute after its address left Endpoints",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	total := kubeletlab.Published{NotReady: map[string]int{}, Lowest: probed}
	var facts []string
	rounds, want := history.Of[restarted](h), restarts(labkit.Variant(h.Variant), labkit.Profile(h.Profile))+1
	ours := h.Variant == string(labkit.Ours)
	few := "" // the round in which ours did not do what is to be seen
	for i, r := range rounds {
		if r.Round != i {
			return labkit.InconclusiveBecause("restart %d is missing", i)
		}
		if ours && (int(r.Kept) < r.MustKeep || r.MustKeep == 0) {
			few = fmt.Sprintf("%s: the kubelet reports that it kept the readiness of %v containers, want at least %d", r.What, r.Kept, r.MustKeep)
		}
		facts = append(facts, fmt.Sprintf("%s: %v", r.What, r.Seen))
		for k, v := range r.Seen.NotReady {
			total.NotReady[k] += v
		}
		total.Removed += r.Seen.Removed
		total.Lowest = min(total.Lowest, r.Seen.Lowest)
		if total.First == "" {
			total.First = r.Seen.First
		}
	}
	lost := len(total.NotReady) > 0 || total.Removed > 0
	if few != "" && !lost {
		return labkit.InconclusiveBecause("%s", few)
	}
	if ours && lost {
		// Nothing that follows makes up for that.
		res := labkit.ReproducedBecause("in %d restarts of %d: %v", len(rounds), want, total)
		res.Facts = facts
		return res
	}
	if len(rounds) != want {
		return labkit.InconclusiveBecause("%d restarts of %d were recorded", len(rounds), want)
	}
	q, never := history.One[requests](h), history.One[everReady](h)
	facts = append(facts, fmt.Sprintf("load: %v", q.Load), fmt.Sprintf("control, the pod whose container was replaced: %v", q.Control))
	if q.Load.OK == 0 {
		return labkit.InconclusiveBecause("the load sent nothing")
	}
	if q.Control.Failed == q.Control.NoTarget {
		return labkit.InconclusiveBecause("no request to the pod whose container was replaced failed (%v): the load does not detect failures", q.Control)
	}
	if never.Events == 0 {
		return labkit.InconclusiveBecause("the pod that is never ready was not recorded")
	}
	if len(never.At) > 0 {
		facts = append(facts, fmt.Sprintf("the pod that is never ready was published as ready at %v", never.At))
	}
	res := labkit.AbsentBecause("in %d restarts no pod of %d was published as not ready, no address left Endpoints, %d requests, none failed", want, probed, q.Load.OK)
	switch refused := q.Load.Failed - q.Load.TimedOut; {
	case lost || refused > 0 || len(never.At) > 0:
		res = labkit.ReproducedBecause("in %d restarts: %v; %d of %d requests failed", want, total, q.Load.Failed, q.Load.OK+q.Load.Failed)
	case q.Load.TimedOut > 0:
		res = labkit.InconclusiveBecause("%d requests got no answer in time: the machine is too busy for a verdict", q.Load.TimedOut)
		res.Facts = facts
		return res
	}
	if ours {
		switch f := history.One[fast](h); {
		case f.NotReadyAfter > 0:
			facts = append(facts, fmt.Sprintf("%d restarts faster than a failing probe: kept at first, not ready after %v (bound %v)", f.Starts, f.NotReadyAfter.Round(time.Second), bound))
		default:
			res = labkit.ReproducedBecause("%d restarts in %v, each faster than the probe's threshold, kept a failing pod ready: the bound is %v", f.Starts, f.For.Round(time.Second), bound)
		}
	}
	if ours && h.Profile == string(labkit.Long) {
		switch a := history.One[wentAway](h); {
		case a.Withdrawn > 0:
			facts = append(facts, fmt.Sprintf("no kubelet and no controller manager for %v: the next kubelet discards the readiness of %v containers when it first publishes", a.For, a.Withdrawn))
		default:
			res = labkit.ReproducedBecause("after %v without a kubelet and a controller manager, the kubelet kept the readiness that was published before", a.For)
		}
	}
	res.Facts = facts
	return res
}
