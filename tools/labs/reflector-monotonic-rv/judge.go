// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
)

// Phases of the lab, in what is recorded of them.
const (
	phaseIncident      = "the incident"
	phaseLiveCheck     = "the live check alone"
	phaseGoneBefore    = "before 410 Gone"
	phaseGone          = "410 Gone"
	phaseRestart       = "restart of the API server"
	phaseRestoreBefore = "before etcd from an older copy"
	phaseRestore       = "etcd from an older copy"
	phaseChurn         = "churn"
	phaseAll           = "all this"
)

// withoutLiveCheck is the variant that shows what the live check is for. The reflector's
// patch is in it.
const withoutLiveCheck = labkit.Ours + " -endpoints-live-service-check"

// convergences are the phases that end with Endpoints for exactly the Services.
var convergences = []string{phaseGoneBefore, phaseGone, phaseRestart, phaseRestoreBefore, phaseRestore, phaseChurn}

// incidentSeen are the Endpoints of live Services that were Deleted in Restarts of the
// watch. The deletion of old was sent with the version Sent, after Last.
type incidentSeen struct {
	Phase      string
	Deleted    []string
	Restarts   int
	Sent, Last int
	Gaps       int // how often an independent watch was lost
	Series     []Point
}

// Point is how many of the Services that live have ready Endpoints, from a time on. Seconds count from
// the deletion of old; the first point is that time.
type Point struct {
	Seconds float64
	With    int
}

// Series is what an independent watcher saw in the first incident of a run.
func Series(h *history.History) ([]Point, error) {
	for _, o := range history.Of[incidentSeen](h) {
		if o.Phase == phaseIncident && len(o.Series) > 0 {
			return o.Series, h.Err()
		}
	}
	return nil, errors.Join(fmt.Errorf("lab %s, %s: the history has no series", h.Lab, h.Variant), h.Err())
}

// seriesOf counts the Services with ready Endpoints at each event of their Endpoints that changes
// the count, up to a time. At first all have them.
func seriesOf(events []kube.RecordedEvent, services int, from, to time.Time) []Point {
	without := map[string]bool{}
	out := []Point{{0, services}}
	for _, ev := range events {
		if ev.Object == nil || !strings.HasPrefix(ev.Object.GetName(), "s") {
			continue // a gap has no object
		}
		without[ev.Object.GetName()] = ev.Type == "DELETED" || len(kube.ReadyAddresses(ev.Object)) == 0
		n := services
		for _, gone := range without {
			if gone {
				n--
			}
		}
		if n != out[len(out)-1].With {
			out = append(out, Point{ev.Time.Sub(from).Seconds(), n})
		}
	}
	return append(out, Point{to.Sub(from).Seconds(), out[len(out)-1].With})
}

// audited is what audit-rv found of the controller manager: watches that restart from the
// past, in Restarts, of which Want are expected at least.
type audited struct {
	Phase          string
	Has            bool // that release writes an audit log that can be judged
	Restarts, Want int
	Found          []auditResult
	OffFrom, OffTo time.Time // when the gate was off
}

// oursSays is what the controller manager says of the old versions: its counter, its
// warning, and the server's version in that.
type oursSays struct {
	Kept                   float64
	Warning, Named, Server string
}

// liveCheck is what the counters say when only the live check is on.
type liveCheck struct{ Kept, Followed float64 }

// lists are the Services, and how many ready addresses each Endpoints object has.
type lists struct {
	After    string
	Services []string
	Ready    map[string]int
}

// fault says which Endpoints are not those of the Services, "" if all are.
func (o lists) fault() string {
	for _, name := range o.Services {
		if name != "kubernetes" && o.Ready[name] != 2 {
			return fmt.Sprintf("service %s has %d ready addresses", name, o.Ready[name])
		}
	}
	for name := range o.Ready {
		if !slices.Contains(o.Services, name) {
			return fmt.Sprintf("endpoints %s belong to no Service", name)
		}
	}
	return ""
}

// churned is what happened while Services came and went and watches were cut.
type churned struct {
	Made, Removed, Cuts int
	// Skipped are Services that the controller passed over, as stock's does, because its cache
	// had the Endpoints of the one before: see touchSkipped.
	Skipped []string
	Lives   map[string][]life
	Deleted []deletion // of Endpoints
	Gaps    int
}

type life struct{ From, To time.Time }

type deletion struct {
	Name string
	At   time.Time
}

// wrong counts the deletions of Endpoints while their Service lived.
func (c churned) wrong() int {
	n := 0
	for _, d := range c.Deleted {
		for _, v := range c.Lives[d.Name] {
			if d.At.After(v.From) && d.At.Before(v.To) {
				n++
			}
		}
	}
	return n
}

var oracle = labkit.Oracle{
	Text: []string{
		"an independent watcher of Endpoints receives no deletion of the Endpoints of a live Service",
		"the apiserver's audit log has no watch of the controller manager that restarts from an older version, except while the gate was off",
		"the counting controller receives no event twice, and handles no deletion of an existing object",
		"Holdfast has counted and warned; each time the Endpoints converge to the server's Services",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	var facts []string
	fact := func(format string, a ...any) { facts = append(facts, fmt.Sprintf(format, a...)) }
	deleted, phases := map[string]int{}, map[string]bool{}
	restarts := 0
	if h.Variant == string(labkit.Ours) {
		// What could not be told of one phase hides no loss in another.
		for _, o := range history.Of[incidentSeen](h) {
			if len(o.Deleted) > 0 {
				return labkit.ReproducedBecause("%s: %d deletions of the Endpoints of live Services", o.Phase, len(o.Deleted))
			}
		}
	}
	for _, o := range history.Of[incidentSeen](h) {
		phases[o.Phase] = true
		deleted[o.Phase] = len(o.Deleted)
		restarts = o.Restarts
		fact("%s: deletion of old sent with resourceVersion %d after %d; %d deletions of the Endpoints of live Services", o.Phase, o.Sent, o.Last, len(o.Deleted))
		if o.Sent >= o.Last {
			return labkit.InconclusiveBecause("the deletion was sent with resourceVersion %d after %d: the server does not have the fault that this lab needs", o.Sent, o.Last)
		}
		if o.Gaps > 0 {
			return labkit.InconclusiveBecause("an independent watch was lost: what happened in the gap is unknown")
		}
	}
	replays, flaps, resources := 0, 0, 0
	for _, c := range history.Of[counted](h) {
		if c.Events < 3*c.Objects || c.Objects == 0 || len(c.Watches) < c.Restarts {
			return labkit.InconclusiveBecause("the counting controller had too little of %s to judge: %d events, %d watches", c.Resource, c.Events, len(c.Watches))
		}
		replays, flaps, resources = replays+c.Replays, flaps+c.Flaps, resources+1
		fact("counting controller, %s: %d events, %d of them replayed; %d deletions of existing objects; watches from %s", c.Resource, c.Events, c.Replays, c.Flaps, strings.Join(c.Watches, " "))
	}
	logs := map[string]audited{}
	for _, a := range history.Of[audited](h) {
		logs[a.Phase] = a
		if a.Has && a.Restarts < a.Want {
			return labkit.InconclusiveBecause("the audit log has %d restarts of watches, expected at least %d", a.Restarts, a.Want)
		}
	}
	first, ok := logs[phaseIncident]
	if !ok || !phases[phaseIncident] || resources != 2 && h.Variant != string(labkit.GateOff) {
		return labkit.InconclusiveBecause("the incident, the counting controller or the audit log was not recorded")
	}
	fact("watches of the controller manager that restart from an older version, in the audit log: %d", len(first.Found))
	for _, f := range first.Found {
		fact("  %s: %d of %d restarts (%d back, %d stale)", f.Resource, f.count("back")+f.count("stale"), f.Restarts, f.count("back"), f.count("stale"))
	}
	var res labkit.Outcome
	switch n := deleted[phaseIncident]; {
	case n > 0 && h.Variant == string(labkit.Stock) && (replays == 0 || flaps == 0):
		res = labkit.InconclusiveBecause("the controller manager shows the incident, but the counting controller does not: %d replayed events, %d deletions of what lives", replays, flaps)
	case n > 0 && (len(first.Found) > 0 || !first.Has):
		res = labkit.ReproducedBecause("%d deletions of the Endpoints of live Services in %d restarts of the watch", n, restarts)
	case n > 0:
		res = labkit.InconclusiveBecause("%d deletions of the Endpoints of live Services, but the audit log shows no watch that restarts from an older version", n)
	case len(first.Found) > 0:
		res = labkit.ReproducedBecause("watches restart from an older version (audit log), although no Endpoints were deleted")
	case replays+flaps > 0:
		res = labkit.ReproducedBecause("the counting controller had %d replayed events and %d deletions of existing objects", replays, flaps)
	default:
		res = judgeRest(h, deleted[phaseLiveCheck], phases[phaseLiveCheck], logs, fact)
	}
	if res.Verdict == labkit.Reproduced && h.Variant == string(withoutLiveCheck) && deleted[phaseLiveCheck] == 0 {
		res = labkit.InconclusiveBecause("without the live check the result is the same; %s", res.Why)
	}
	res.Facts = facts
	return res
}

// judgeRest judges what comes after an incident that was not there.
func judgeRest(h *history.History, deleted int, live bool, logs map[string]audited, fact func(string, ...any)) labkit.Outcome {
	var wrong []string
	unsure := "" // hides nothing that is wrong
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	says, checks, churns := history.Of[oursSays](h), history.Of[liveCheck](h), history.Of[churned](h)
	for _, o := range says {
		fact("%s{type=\"*v1.Service\",result=\"kept\"} %v; %s", regressions, o.Kept, o.Warning)
		if o.Kept < 1 {
			bad("the counter %s did not count the old versions that the server sent", regressions)
		}
		if o.Warning == "" || o.Named != o.Server {
			bad("the controller manager's log has no warning of the old versions that names server version %s: %q", o.Server, o.Warning)
		}
	}
	for _, o := range checks {
		fact("live check alone: %d deletions of the Endpoints of live Services; %s{result=\"kept\"} %v; %s{result=\"followed\"} %v", deleted, liveChecks, o.Kept, regressions, o.Followed)
		if deleted > 0 {
			bad("%d deletions of the Endpoints of live Services with the live check on", deleted)
		} else if o.Kept == 0 {
			unsure = "the cache of the endpoints controller never lacked a live Service, so the check was not tested"
		}
	}
	var converged []string
	for _, o := range history.Of[lists](h) {
		converged = append(converged, o.After)
		if f := o.fault(); f != "" {
			bad("%s: %s", o.After, f)
		}
	}
	for _, o := range churns {
		fact("churn: %d Services created, %d deleted, %d watches cut in mid-stream; %d deletions of the Endpoints of live Services; %d Services were left without Endpoints, as by stock", o.Made, o.Removed, o.Cuts, o.wrong(), len(o.Skipped))
		if n := o.wrong(); n > 0 {
			bad("churn: %d deletions of the Endpoints of live Services", n)
		} else if o.Cuts == 0 || o.Gaps > 0 || len(o.Deleted) == 0 {
			unsure = fmt.Sprintf("churn: %d watches cut, the independent watch lost %d times, %d deletions of Endpoints seen", o.Cuts, o.Gaps, len(o.Deleted))
		}
	}
	last, all := logs[phaseAll]
	for _, r := range last.Found {
		for _, f := range r.Findings {
			if f.proof() && (f.Time.Before(last.OffFrom) || f.Time.After(last.OffTo)) {
				bad("a watch of %s restarted from an older version at %s: %+v", r.Resource, f.Time.Format(time.RFC3339), f)
			}
		}
	}
	switch {
	case len(wrong) > 0:
		return labkit.ReproducedBecause("%s", strings.Join(wrong, "; "))
	case unsure != "":
		return labkit.InconclusiveBecause("%s", unsure)
	case h.Variant == string(labkit.GateOff):
		return labkit.AbsentBecause("no Endpoints of a live Service were deleted, and no watch restarted from an older version")
	case len(says) != 1 || len(checks) != 1 || !live || len(churns) != 1 || !all || !slices.Equal(converged, convergences):
		return labkit.InconclusiveBecause("not all observations were recorded: Endpoints converged after %q", converged)
	}
	return labkit.AbsentBecause("no Endpoints of a live Service were deleted, and no watch restarted from an older version")
}
