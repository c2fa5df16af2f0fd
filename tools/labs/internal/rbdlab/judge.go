// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// Ending is what the rows of a lab came to.
type Ending struct {
	// Lost are the rows that show the incident, and what was seen; Fine are those that do not.
	Lost, Fine []string
	// Wrong is what must not be with any build, such as a filesystem that is not clean: it is
	// not the incident, so it is an answer for ours only.
	Wrong []string
	// Missing are rows that cannot tell, and why. They leave the answer open, but for what ours has
	// lost or damaged in another row.
	Missing []string
	// EachLosesAll: every variant but ours must lose all rows. Else only stock must.
	EachLosesAll bool
	// Absent is why, if nothing is lost or wrong.
	Absent string
}

// Answer gives res the ending's verdict.
func (e Ending) Answer(h *history.History, res labkit.Outcome) labkit.Outcome {
	stock, ours := h.Variant == string(labkit.Stock), h.Variant == string(labkit.Ours)
	bad := slices.Concat(e.Wrong, e.Lost)
	mustLoseAll := stock || e.EachLosesAll && !ours
	if len(e.Missing) > 0 {
		missing := strings.Join(e.Missing, "; ")
		if !ours || len(bad) == 0 {
			res.Verdict, res.Why = labkit.Inconclusive, missing
			return res
		}
		bad = append(bad, "not known: "+missing)
	}
	switch {
	case len(bad) == 0:
		res.Verdict, res.Why = labkit.Absent, e.Absent
	case !ours && len(e.Wrong) > 0:
		res.Verdict, res.Why = labkit.Inconclusive, strings.Join(bad, "; ")
	case mustLoseAll && len(e.Fine) > 0:
		res.Verdict, res.Why = labkit.Inconclusive, fmt.Sprintf("%s; as expected: %s", strings.Join(bad, "; "), strings.Join(e.Fine, ", "))
	default:
		res.Verdict, res.Why = labkit.Reproduced, strings.Join(bad, "; ")
	}
	return res
}

// At is where an observation belongs: an image at a moment of the plan.
type At struct{ Image, When string }

// States are the recorded states, the last one of each moment.
func States(h *history.History) map[At]State {
	all := map[At]State{}
	for _, s := range history.Of[State](h) {
		all[At{s.Image, s.When}] = s
	}
	return all
}

// ContentsOf are the recorded contents, the last ones of each moment.
func ContentsOf(h *history.History) map[At]Contents {
	all := map[At]Contents{}
	for _, c := range history.Of[Contents](h) {
		all[At{c.Image, c.When}] = c
	}
	return all
}

// LearnedOf are the pods whose mount the restarted kubelet has reported.
func LearnedOf(h *history.History) map[string]bool {
	all := map[string]bool{}
	for _, l := range history.Of[Learned](h) {
		all[l.Pod] = l.Seen
	}
	return all
}

// Foreign names a volume in a node's status that has no monitors or no image, "" if there is
// none: no controller knows it.
func (s State) Foreign() string {
	for _, n := range slices.Sorted(maps.Keys(s.InUse)) {
		for _, v := range s.InUse[n] {
			if strings.HasPrefix(v, "kubernetes.io/rbd/[]") || strings.HasSuffix(v, ":") {
				return fmt.Sprintf("volumesInUse of %s has %q", n, v)
			}
		}
	}
	return ""
}
