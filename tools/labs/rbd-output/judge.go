// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdoutput

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/rbdlab"
)

// mostCalls is how many commands of rbd an attach of ours may take; stock takes two.
const mostCalls = 4

var oracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("rbd ls and the PersistentVolume have %d MiB within %v", larger, bound),
		"neither key is in a log, an event or an object; the log has the plugin's lines about rbd create, which proves a level of at least -v=4",
		fmt.Sprintf("the claim's image is gone within %v after the claim", bound),
		fmt.Sprintf("a pod whose volume is not attached gets an event about it; a pod that has waited %v for its attach runs within %v after a controller manager attaches volumes", lateWaits, bound),
		fmt.Sprintf("an attach runs rbd twice on stock, and at most %d times on Holdfast", mostCalls),
	},
	Judge: judge,
}

// leaks are the places with a key.
func leaks(h *history.History) (found []string, places, creates int) {
	for _, s := range history.Of[sighted](h) {
		places++
		creates += s.Creates
		if s.Admin > 0 {
			found = append(found, fmt.Sprintf("the admin's key is in %s (%d times)", s.In, s.Admin))
		}
		if s.Bad > 0 {
			found = append(found, fmt.Sprintf("the malformed key is in %s (%d times)", s.In, s.Bad))
		}
	}
	return found, places, creates
}

func judge(h *history.History) labkit.Outcome {
	images := map[string]image{}
	for _, i := range history.Of[image](h) {
		images[i.When] = i
	}
	states, contents := rbdlab.States(h), rbdlab.ContentsOf(h)
	waiting, sawWaiting := states[rbdlab.At{Image: "late", When: waits}]
	late, sawLate := states[rbdlab.At{Image: "late", When: runs}]
	gone, sawGone := states[rbdlab.At{Image: "late", When: removed}]
	left, sawLeft := contents[rbdlab.At{Image: "late", When: removed}]
	found, places, creates := leaks(h)
	attaches := history.Of[calls](h)
	was, is, end := images[provisioned], images[expanded], images[removed]
	switch {
	case was.MiB != smaller:
		return labkit.InconclusiveBecause("the claim was not provisioned: %+v", was)
	case is.When == "" || end.When == "":
		return labkit.InconclusiveBecause("no observation of the claim's image was recorded")
	case !history.One[failed](h).Seen || !history.One[waitEvent](h).Seen:
		return labkit.InconclusiveBecause("an event was not recorded")
	case places < 7 || creates == 0:
		return labkit.InconclusiveBecause("%d logs and lists were searched for keys, with %d lines about rbd create", places, creates)
	case !sawWaiting || !sawLate || !sawGone || !sawLeft || waiting.Runs("late") || waiting.Held() || !slices.Contains(waiting.InUseOn(), "node1"):
		return labkit.InconclusiveBecause("the pod did not wait for its attach, or no observation was recorded")
	case len(attaches) != 2:
		return labkit.InconclusiveBecause("%d attaches were counted", len(attaches))
	}
	res := labkit.Outcome{}
	most := 0
	for _, c := range attaches {
		most = max(most, len(c.RBD))
		res.Facts = append(res.Facts, fmt.Sprintf("an attach (read-only %t) runs rbd %d times: %s", c.ReadOnly, len(c.RBD), strings.Join(c.RBD, ", ")))
	}
	res.Measure("commands of rbd in an attach, at most", float64(most), "")
	res.Measure("expansion", is.Seconds, "s")
	res.Measure("Running after the controller manager's swap", late.Seconds, "s")
	var other []string
	switch {
	case !late.Runs("late"):
		other = append(other, "the pod does not run although its volume is attached")
	case gone.Held():
		other = append(other, "the pod's image is still held")
	}
	if text := left.Lost(nil); text != "" {
		other = append(other, text)
	}
	if end.MiB != 0 || end.Capacity != "" {
		other = append(other, fmt.Sprintf("the deleted claim's image has %d MiB", end.MiB))
	}
	if most > mostCalls || h.Variant == string(labkit.Stock) && most != 2 {
		other = append(other, fmt.Sprintf("an attach runs rbd %d times", most))
	}
	res.Facts = append(res.Facts, found...)
	answer := rbdlab.Ending{Lost: found, Wrong: other, Absent: fmt.Sprintf("expanded to %d MiB after %.1f s, no key in %d logs and lists, Running %.1f s after the controller manager attaches",
		larger, is.Seconds, places, late.Seconds)}
	if len(found) == 0 {
		answer.Fine = append(answer.Fine, "no key is seen")
	}
	if is.MiB != larger || is.Capacity != fmt.Sprintf("%dMi", larger) {
		answer.Lost = append([]string{fmt.Sprintf("the image has %d MiB and its volume %s, requested were %d", is.MiB, is.Capacity, larger)}, found...)
	} else {
		answer.Fine = append(answer.Fine, "it is expanded")
	}
	return answer.Answer(h, res)
}
