// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package orphanedvolumedirs

import (
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

var oracle = labkit.Oracle{
	Text: []string{
		"reproduced: the directory of the pod with one empty volume directory remains for 100 s, and the kubelet still counts the pod among its errors",
		"absent: this directory is gone and not counted; the other three pods still have all volume directories, mounts and data",
		"also reproduced: one of these three pods lost anything",
	},
	Judge: judge,
}

// kept is what must be left of the others.
var kept = map[string]left{
	beside:    {Pod: beside, Dir: true, Volumes: 2, Data: data},
	bound:     {Pod: bound, Dir: true, Volumes: 1, Mounted: true, Data: data},
	boundNone: {Pod: boundNone, Dir: true, Volumes: 1, Mounted: true},
}

func judge(h *history.History) labkit.Outcome {
	counted := map[string]int{}
	for _, f := range history.Of[found](h) {
		counted[f.When] = f.Pods
	}
	all := map[string]left{}
	for _, o := range history.Of[left](h) {
		all[o.Pod] = o
	}
	if counted["start"] != len(pods) || len(all) != len(pods) {
		return labkit.InconclusiveBecause("the kubelet found %d pods at its start and %d were recorded, want %d", counted["start"], len(all), len(pods))
	}
	for _, p := range pods[1:] {
		if all[p] != kept[p] {
			return labkit.ReproducedBecause("pod %s lost something: %+v, was %+v", p, all[p], kept[p])
		}
	}
	switch {
	case all[empty].Dir && counted["end"] == len(pods):
		return labkit.ReproducedBecause("the directory of the pod with an empty volume directory still exists, and the pod is one of %d in the kubelet's errors", counted["end"])
	case !all[empty].Dir && counted["end"] == len(kept):
		return labkit.AbsentBecause("the directory of the pod with an empty volume directory is gone; %d pods with data or mounts have not changed", counted["end"])
	}
	return labkit.InconclusiveBecause("the pod's directory exists: %v; the kubelet's errors count %d pods", all[empty].Dir, counted["end"])
}
