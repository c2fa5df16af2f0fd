// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package orphanedvolumedirs

import (
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

var oracle = labkit.Oracle{
	Text: []string{
		"reproduced: the pod's directory with one empty volume directory stays for 100 s, and the kubelet goes on to count it among its errors",
		"absent: it is gone, and not counted; the other three are there with all volume directories, mounts and data",
		"also reproduced: one of these three lost anything",
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
		return labkit.InconclusiveBecause("the kubelet found %d pods at its start and %d were looked at, want %d", counted["start"], len(all), len(pods))
	}
	for _, p := range pods[1:] {
		if all[p] != kept[p] {
			return labkit.ReproducedBecause("pod %s lost something: %+v, was %+v", p, all[p], kept[p])
		}
	}
	switch {
	case all[empty].Dir && counted["end"] == len(pods):
		return labkit.ReproducedBecause("the pod with an empty volume directory is there, and one of %d in the kubelet's errors", counted["end"])
	case !all[empty].Dir && counted["end"] == len(kept):
		return labkit.AbsentBecause("the pod with an empty volume directory is gone; %d with data or mounts stay as they were", counted["end"])
	}
	return labkit.InconclusiveBecause("the pod's directory is there: %v; the kubelet's errors count %d", all[empty].Dir, counted["end"])
}
