// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cniafterupgrade

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

var oracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("reproduced: %v after a phase there is a lease of a sandbox that does not run, an ADD without a DEL, or a superfluous link on the bridge", settle),
		"also reproduced: a running sandbox has no lease, or a deleted pod still exists",
		"absent: after each phase there are as many leases and links as sandboxes, and each ADD of a removed sandbox has its DEL",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	all := map[string]seen{}
	for _, s := range history.Of[seen](h) {
		all[s.Phase] = s
	}
	facts := []string{fmt.Sprintf("%-8s %9s %6s %6s %5s  %s", "after", "sandboxes", "links", "stray", "owed", "leases whose sandbox does not run")}
	var wrong []string
	known := map[string]int{} // stray leases of the phases before
	leases, owed, missing := 0, 0, ""
	for _, phase := range phases {
		s, ok := all[phase]
		if !ok {
			missing = fmt.Sprintf("no observation was recorded after %s", phase)
			continue
		}
		facts = append(facts, fmt.Sprintf("%-8s %9d %6d %6d %5d  %s", phase, s.Sandboxes, s.Links, len(s.Stray), len(s.Owed), strings.Join(s.Stray, " ")))
		if phase != ended {
			for _, k := range kinds[phase] {
				if s.Adds[k]+s.Failed[k] < each {
					missing = fmt.Sprintf("%s: %d ADDs of pods of kind %s, want %d", phase, s.Adds[k]+s.Failed[k], k, each)
				}
			}
		}
		if s.Sandboxes != s.Pods || (s.Pods == 0) != (phase == ended) {
			missing = fmt.Sprintf("%s: %d sandboxes run for %d pods", phase, s.Sandboxes, s.Pods)
		}
		if phase == adds && s.Failed[addFails] != each {
			missing = fmt.Sprintf("%s: %d ADDs failed, want %d", phase, s.Failed[addFails], each)
		}
		var fresh []string
		now := map[string]int{}
		for _, p := range s.Stray {
			if now[p]++; now[p] > known[p] {
				fresh = append(fresh, p)
			}
		}
		known = now
		add := func(n int, what string) {
			if n > 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %d %s", phase, n, what))
			}
		}
		add(len(fresh), "leases stay: "+strings.Join(fresh, ", "))
		add(s.Links-s.Sandboxes, "links too many")
		add(s.Without, "sandboxes without a lease")
		if len(s.Stray) == 0 {
			add(len(s.Owed), "ADDs without a DEL: "+strings.Join(s.Owed, ", "))
		}
		leases, owed = len(s.Stray), len(s.Owed)
	}
	deleted := history.Of[named](h)
	for _, running := range []bool{false, true} {
		i := slices.IndexFunc(deleted, func(o named) bool { return o.Running == running })
		switch {
		case i < 0:
			missing = fmt.Sprintf("no pod was deleted while a running container had its sandbox's name: %v", running)
		case !deleted[i].Gone:
			wrong = append(wrong, fmt.Sprintf("a deleted pod still exists: a container (running: %v) has its sandbox's name", running))
		case running && !deleted[i].There:
			wrong = append(wrong, "a running container was removed because of its name")
		}
	}
	res := labkit.AbsentBecause("%d phases: as many leases and links as sandboxes, and each ADD had its DEL", len(phases))
	switch {
	case missing != "":
		res = labkit.InconclusiveBecause("%s", missing)
	case len(wrong) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(wrong, "; "))
	}
	res.Facts = facts
	res.Measure("leases left at the end", float64(leases), "")
	res.Measure("ADDs without a DEL", float64(owed), "")
	return res
}
