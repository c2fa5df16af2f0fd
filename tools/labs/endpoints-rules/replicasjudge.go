// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// routed is a replacement while two programs review.
type routed struct {
	replacement
	Route route
	// Asked is how many reviews each program got.
	Asked map[string]int
	// Behind is how many addresses stayed where they were in a review, as the program that
	// is behind knew an older pod.
	Behind float64
	Said   []said
}

// said is what a program says when nothing is misplaced, or when the time is over.
type said struct {
	Program   string
	Misplaced float64
	Disputed  float64 // Services that somebody else writes otherwise
	Unread    string  // why that could not be read, if it could not
}

// replicaStuck is the longest that a ready pod may be missing: the program that is behind
// does not let it in before it knows of it.
const replicaStuck = stuck + lag

var replicasOracle = labkit.Oracle{
	Text: []string{
		"L: the report's client, which gathers updates for 2 s (fixed and trailing windows), enables no pod before its old container is gone",
		fmt.Sprintf("all addresses are ready at most %v after the last pod, and by then no program has a misplaced address", replicaStuck),
		"the delayed program reviewed writes, and had older versions of some pods than the addresses; otherwise the run is inconclusive",
	},
	Judge: judgeReplicas,
}

func (r routed) String() string {
	return fmt.Sprintf("reviews: %s, round %d: L broken for %d of %d pods (fixed), %d (trailing); %d updates of the Endpoints; all ready %v after the last pod was; reviews %v; %v addresses stayed where they were",
		r.Route, r.Round+1, len(r.broken(fixed)), len(r.Pods), len(r.broken(trailing)), len(r.Updates), r.Late.Round(10*time.Millisecond), r.Asked, r.Behind)
}

// wrong says what is, "" if nothing is.
func (r routed) wrong() string {
	f, t := r.broken(fixed), r.broken(trailing)
	switch {
	case r.Late == 0:
		return fmt.Sprintf("reviews: %s: %v after the last pod became ready, %d of %d addresses are ready", r.Route, replicaStuck, r.Addresses, pods)
	case len(f)+len(t) > 0:
		return fmt.Sprintf("reviews: %s: the client enabled pods whose old container still ran: %v (fixed windows), %v (trailing)", r.Route, f, t)
	}
	for _, s := range r.Said {
		switch {
		case s.Unread != "":
			return fmt.Sprintf("reviews: %s: %s does not report how many addresses are misplaced: %s", r.Route, s.Program, s.Unread)
		case s.Misplaced > 0:
			return fmt.Sprintf("reviews: %s: %v addresses are misplaced for %s %v after all pods were ready", r.Route, s.Misplaced, s.Program, replicaStuck)
		}
	}
	return ""
}

// unsure says why a round that shows nothing wrong shows nothing.
func (r routed) unsure() string {
	switch {
	case len(r.Pods) != pods || r.changed() != pods:
		return fmt.Sprintf("reviews: %s: the old containers of %d of %d pods ended, want %d", r.Route, r.changed(), len(r.Pods), pods)
	case len(r.Updates) == 0:
		return fmt.Sprintf("reviews: %s: the Endpoints never changed: the trigger is missing", r.Route)
	case r.Route == noRoute:
		return ""
	case len(r.Said) != 2:
		return fmt.Sprintf("reviews: %s: the metric of misplaced addresses was read from %d programs, want 2", r.Route, len(r.Said))
	case r.Route == alternate && r.Asked[current] == 0:
		return fmt.Sprintf("reviews: %s: %s reviewed nothing", r.Route, current)
	case r.Asked[behind] == 0:
		return fmt.Sprintf("reviews: %s: %s reviewed nothing", r.Route, behind)
	case r.Behind == 0:
		return fmt.Sprintf("reviews: %s: %s had already received each pod: the trigger is missing", r.Route, behind)
	}
	return ""
}

func judgeReplicas(h *history.History) labkit.Outcome {
	all := history.Of[routed](h)
	res := replicasVerdict(h, all)
	last := map[route]routed{}
	for _, r := range all {
		res.Facts = append(res.Facts, r.String())
		last[r.Route] = r
	}
	for _, way := range routesOf(labkit.Variant(h.Variant)) {
		r, ok := last[way]
		if !ok {
			continue
		}
		for _, w := range []window{fixed, trailing} {
			res.Measure(fmt.Sprintf("pods switched on too early, %s windows, reviews: %s", w, way), float64(len(r.broken(w))), "")
		}
		res.Measure(fmt.Sprintf("all addresses ready after the last pod, reviews: %s", way), r.Late.Seconds(), "s")
	}
	return res
}

// replicasVerdict: no round that shows nothing hides another one's loss.
func replicasVerdict(h *history.History, all []routed) labkit.Outcome {
	unsure := ""
	got, updates := map[route]int{}, 0
	for _, r := range all {
		why := r.unsure()
		if wrong := r.wrong(); wrong != "" && r.changed() == pods {
			return labkit.ReproducedBecause("%s", wrong)
		}
		if unsure == "" {
			unsure = why
		}
		got[r.Route]++
		updates += len(r.Updates)
	}
	if unsure != "" {
		return labkit.InconclusiveBecause("%s", unsure)
	}
	n := rounds(labkit.Profile(h.Profile))
	for _, way := range routesOf(labkit.Variant(h.Variant)) {
		if got[way] != n {
			return labkit.InconclusiveBecause("reviews: %s: %d rounds, want %d", way, got[way], n)
		}
	}
	return labkit.AbsentBecause("none of %d pods was enabled before its old container was gone, in %d updates of the Endpoints, and no address was stuck", pods, updates)
}
