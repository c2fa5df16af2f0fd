// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeswap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// swapped is a swap in one direction.
type swapped struct {
	To string // holdfast or back
	// Forecast has the containers of the plan, Verify the codes of verify's findings.
	Forecast []kubeletlab.Told
	Verify   []string
	// Status has the exit status of each command.
	Status        map[string]int
	Before, After kubeletlab.Snapshot
	// Kubelet is the version that the API server has after it.
	Kubelet string
}

// stopped is a swap that must leave the old kubelet.
type stopped struct {
	What   string // one of stops
	Status int
	Codes  []string
	// PID is the unit's process before and after, Kubelet the release of the unit's file after.
	PID           [2]int
	Kubelet       string
	Before, After kubeletlab.Snapshot
}

// The swaps that must leave the old kubelet, and the code that says why.
const (
	refusedFlag = "a flag that Holdfast refuses"
	endsAtOnce  = "a kubelet that exits at once"
)

var stops = map[string]string{refusedFlag: "HF101", endsAtOnce: "HF511"}

// directions are the swaps, and what the kubelet's version must then have.
var directions = []struct{ to, version string }{{"holdfast", "+holdfast"}, {"back", old}}

// wantStatus is the documented status: what is new is no STOP, so all is 0.
var wantStatus = map[string]map[string]int{
	"holdfast": {"forecast": 0, "forecast --fail-on new": 3, "check": 0, "swap": 0, "verify": 0},
	"back":     {"forecast": 0, "forecast --fail-on new": 3, "back": 0, "verify": 0},
}

// wrong says what of a swap is not as it was told.
func (s swapped) wrong(version string) (wrong []string) {
	bad := func(format string, a ...any) { wrong = append(wrong, s.To+": "+fmt.Sprintf(format, a...)) }
	if !strings.Contains(s.Kubelet, version) || version == old && s.Kubelet != old {
		bad("the node then runs %s", s.Kubelet)
	}
	if !maps.Equal(s.Status, wantStatus[s.To]) {
		bad("status %v, want %v", s.Status, wantStatus[s.To])
	}
	if len(s.Verify) > 0 {
		bad("verify has %s", strings.Join(s.Verify, ", "))
	}
	for _, w := range kubeletlab.NotAsTold(s.Forecast, s.Before, s.After, nil) {
		bad("%s", w)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Before)) {
		if c := s.Before[key]; c.Sandbox && s.After[key].ID != c.ID {
			bad("the sandbox of %s was replaced", c.Pod)
		}
	}
	return wrong
}

// wrong says what of a swap that must be stopped or undone is not so.
func (s stopped) wrong() (wrong []string) {
	bad := func(format string, a ...any) { wrong = append(wrong, s.What+": "+fmt.Sprintf(format, a...)) }
	if s.Status != 3 || !slices.Contains(s.Codes, stops[s.What]) {
		bad("status %d with %v, want 3 with %s", s.Status, s.Codes, stops[s.What])
	}
	if same := s.PID[0] == s.PID[1]; same != (s.What == refusedFlag) {
		bad("process %d before, %d after", s.PID[0], s.PID[1])
	}
	if s.PID[1] == 0 || s.Kubelet != old {
		bad("%s runs after it, as process %d", s.Kubelet, s.PID[1])
	}
	d := kubeletlab.Compare(s.Before, s.After, func(string, kubeletlab.Container) bool { return true })
	if n := len(d.Recreated) + len(d.Gone); n > 0 {
		bad("%d containers were replaced: %v", n, append(d.Recreated, d.Gone...))
	}
	return wrong
}

func judge(h *history.History) labkit.Outcome {
	var wrong, facts []string
	swaps, kept := history.Of[swapped](h), map[string]bool{}
	recreated := 0
	for i, s := range swaps {
		if i >= len(directions) || s.To != directions[i].to || len(s.Before) == 0 || len(s.Forecast) == 0 {
			return labkit.InconclusiveBecause("swap %d is to %q, with a forecast for %d of %d containers", i+1, s.To, len(s.Forecast), len(s.Before))
		}
		wrong = append(wrong, s.wrong(directions[i].version)...)
		n := 0
		for _, t := range s.Forecast {
			if t.Answer == "new" {
				n++
			}
		}
		if n == 0 || n == len(s.Forecast) {
			wrong = append(wrong, fmt.Sprintf("%s: the forecast is the same for all containers", s.To))
		}
		recreated += n
		facts = append(facts, fmt.Sprintf("%s: forecast kept for %d containers, recreated for %d", s.To, len(s.Forecast)-n, n))
	}
	for _, s := range history.Of[stopped](h) {
		if len(s.Before) == 0 || s.PID[0] == 0 {
			return labkit.InconclusiveBecause("%s: nothing ran before it", s.What)
		}
		kept[s.What] = true
		wrong = append(wrong, s.wrong()...)
	}
	var res labkit.Outcome
	switch {
	case len(wrong) > 0:
		res = labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	case len(swaps) != len(directions) || len(kept) != len(stops):
		res = labkit.InconclusiveBecause("%d swaps of %d were recorded, %d stopped swaps of %d", len(swaps), len(directions), len(kept), len(stops))
	default:
		res = labkit.PassedBecause("both swaps did what forecast had said, %d containers recreated; the two stopped swaps left the old kubelet and all containers", recreated)
	}
	res.Facts = facts
	return res
}
