// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/labkit/history"
)

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
