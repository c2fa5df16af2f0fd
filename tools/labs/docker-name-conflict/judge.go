// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockernameconflict

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

var oracle = labkit.Oracle{
	Text: []string{
		"reproduced: a dead container remains, and docker refuses its name again and again",
		"also reproduced: a running container is removed or stopped",
		"absent: docker refuses the name of each pod; the dead containers are removed, and their pods run",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	all := map[string]ended{}
	for _, o := range history.Of[ended](h) {
		all[o.Pod] = o
	}
	var waits []string
	for _, t := range cases {
		o, ok := all[t.pod]
		switch {
		case !ok:
			return labkit.InconclusiveBecause("no observation of pod %s was recorded", t.pod)
		case t.running && !o.Running:
			return labkit.ReproducedBecause("the running container with the name of pod %s was stopped or removed", t.pod)
		case o.Refused == 0:
			return labkit.InconclusiveBecause("docker did not refuse the name of pod %s", t.pod)
		case t.running && o.Ready:
			return labkit.InconclusiveBecause("pod %s runs, although its name is in use", t.pod)
		case t.running:
		case !o.Ready && o.There:
			waits = append(waits, fmt.Sprintf("%s, refused %d times", t.pod, o.Refused))
		case !o.Ready || o.There:
			return labkit.InconclusiveBecause("pod %s runs: %v; the dead container exists: %v", t.pod, o.Ready, o.There)
		}
	}
	if len(waits) > 0 {
		return labkit.ReproducedBecause("pods that do not start: %s", strings.Join(waits, "; "))
	}
	return labkit.AbsentBecause("the dead containers are removed and their pods run; the running container was not touched")
}
