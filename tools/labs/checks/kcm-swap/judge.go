// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcmswap

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// The stages of each shape, in order.
const (
	started = "started"
	refused = "refused"
	swapped = "swapped"
	back    = "back"
)

var stages = []string{started, refused, swapped, back}

// answered is what a command gave.
type answered struct {
	Shape, Stage, What string
	Status             int
	Codes              []string
	Changed            bool // the manifest
}

// ran is the controller manager after a stage.
type ran struct {
	Shape, Stage, Version string
	// Started is its process's start, in seconds since 1970.
	Started float64
	// Made is how many pods it made when it was asked for some.
	Made int
	// Kept are the pods and ReplicaSets that no swap may replace.
	Kept []string
}

func (a answered) wrong() string {
	status, changed := 0, a.Stage != refused && a.What != "check"
	if a.Stage == refused {
		status = 3
	}
	switch {
	case a.Status != status || a.Stage == refused && !slices.Contains(a.Codes, "HF523") || a.Stage != refused && len(a.Codes) > 0:
		return fmt.Sprintf("%s, %s: %s ended with %d and %v", a.Shape, a.Stage, a.What, a.Status, a.Codes)
	case a.Changed != changed:
		return fmt.Sprintf("%s, %s: after %s the manifest has changed: %t", a.Shape, a.Stage, a.What, a.Changed)
	}
	return ""
}

func judge(h *history.History) labkit.Outcome {
	var wrong []string
	said := map[string]int{}
	for _, a := range history.Of[answered](h) {
		said[a.Shape+a.Stage]++
		if w := a.wrong(); w != "" {
			wrong = append(wrong, w)
		}
	}
	all := history.Of[ran](h)
	if len(all) != len(shapes)*len(stages) {
		return labkit.InconclusiveBecause("%d of %d stages were recorded", len(all), len(shapes)*len(stages))
	}
	for i, o := range all {
		shape, stage := shapes[i/len(stages)].name, stages[i%len(stages)]
		if o.Shape != shape || o.Stage != stage {
			return labkit.InconclusiveBecause("stage %d is %s, %s", i+1, o.Shape, o.Stage)
		}
		if o.Version == "" || o.Started == 0 || len(o.Kept) == 0 || said[shape+stage] != map[string]int{refused: 2, swapped: 3, back: 3}[stage] {
			return labkit.InconclusiveBecause("%s, %s: not all observations were recorded", shape, stage)
		}
		bad := func(format string, a ...any) {
			wrong = append(wrong, fmt.Sprintf("%s, %s: ", shape, stage)+fmt.Sprintf(format, a...))
		}
		if strings.Contains(o.Version, "+holdfast.") != (stage == swapped) {
			bad("%s leads", o.Version)
		}
		if o.Made != made {
			bad("it created %d of %d pods", o.Made, made)
		}
		if stage != started && (o.Started == all[i-1].Started) != (stage == refused) {
			bad("the process of the previous stage still runs: %t", stage != refused)
		}
		if !slices.Equal(slices.Sorted(slices.Values(o.Kept)), slices.Sorted(slices.Values(all[0].Kept))) {
			bad("pods or ReplicaSets were replaced: %v before, %v now", all[0].Kept, o.Kept)
		}
	}
	if len(wrong) > 0 {
		return labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	}
	return labkit.PassedBecause("%d forms of a manifest: each controller manager led when kcm wait had ended, created its pods, and replaced none", len(shapes))
}
