// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionacrossrestart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// tried is what came of a trial.
type tried struct {
	Trial string
	// Met is what the kubelet met when it got the pods.
	Met string
	// Pods are those that ran, and what each lost; "" if nothing.
	Pods map[string]string
	// Kept is how many of their containers and sandboxes are the same.
	Kept int
	// New is what became of a new pod that asks for the same: admitted, or why it was
	// rejected. Fits is whether it has what it asks for.
	New  string
	Fits bool
}

const admitted = "admitted"

var oracle = labkit.Oracle{
	Text: []string{
		"a pod that ran before the kubelet started is Failed, or one of its containers no longer runs",
		"a new pod that does not fit is rejected; a new pod that fits as soon as the kubelet has its Node runs",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	ours := h.Variant == string(labkit.Ours)
	seen := map[string]tried{}
	for _, o := range history.Of[tried](h) {
		seen[o.Trial] = o
	}
	var facts, lost, whole, wrong []string
	var missing string
	pods, gone := 0, 0
	for _, name := range names {
		o, ok := seen[name]
		if !ok || o.Met == "" || o.New == "" || len(o.Pods) <= webs {
			missing = fmt.Sprintf("%s: not all observations were recorded", name)
			continue
		}
		n := 0
		first := ""
		for _, p := range slices.Sorted(maps.Keys(o.Pods)) {
			pods++
			if o.Pods[p] != "" {
				n++
				if first == "" {
					first = p + ": " + o.Pods[p]
				}
			}
		}
		gone += n
		facts = append(facts, fmt.Sprintf("%s (%s): %d of %d pods lost, %d containers and sandboxes kept; new pod: %s", name, o.Met, n, len(o.Pods), o.Kept, o.New))
		switch {
		case n > 0:
			lost = append(lost, fmt.Sprintf("%s: %d of %d, first %s", name, n, len(o.Pods), first))
		case o.Kept == 0:
			missing = fmt.Sprintf("%s: no container was compared", name)
		default:
			whole = append(whole, name)
		}
		if o.Fits != (o.New == admitted) && (ours || !o.Fits) {
			wrong = append(wrong, fmt.Sprintf("%s: the new pod was %s", name, o.New))
		}
	}
	res := labkit.AbsentBecause("%d trials, %d pods: no pod was rejected, and no container ended", len(names), pods)
	switch {
	case ours && len(lost)+len(wrong) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(append(lost, wrong...), "; "))
	case missing != "":
		res = labkit.InconclusiveBecause("%s", missing)
	case len(wrong) > 0:
		res = labkit.InconclusiveBecause("%s: a pod that does not fit must be rejected", strings.Join(wrong, "; "))
	case len(lost) > 0 && len(whole) > 0:
		res = labkit.InconclusiveBecause("no pod was lost in: %s; in the other trials %d of %d were lost", strings.Join(whole, ", "), gone, pods)
	case len(lost) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(lost, "; "))
	}
	res.Facts = facts
	res.Measure("pods that ran and are lost", float64(gone), "")
	return res
}
