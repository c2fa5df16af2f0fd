// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodereadyacrossrestart

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

var oracle = labkit.Oracle{
	Text: []string{
		"reproduced: a kubelet that starts while dockerd answers publishes its node as not ready",
		fmt.Sprintf("absent: none of %d starts does", starts),
		"control: a kubelet whose dockerd is down at its first check publishes NotReady first, and Ready when dockerd is back; otherwise the verdict is inconclusive",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	all, down := history.Of[started](h), history.One[without](h)
	early, first := 0, ""
	for _, o := range all {
		if len(o.Statuses) < looked {
			return labkit.InconclusiveBecause("start %d: %d statuses, want %d", o.Start, len(o.Statuses), looked)
		}
		for _, s := range o.Statuses {
			if s != ready {
				early++
				if first == "" {
					first = fmt.Sprintf("start %d, %s", o.Start, s)
				}
				break
			}
		}
	}
	if len(all) != starts {
		return labkit.InconclusiveBecause("%d starts, want %d", len(all), starts)
	}
	if len(down.Statuses) == 0 || !strings.HasPrefix(down.Statuses[0], "False: ") || !strings.Contains(down.Statuses[0], "container runtime is down") || down.Back != ready {
		return labkit.InconclusiveBecause("a kubelet without dockerd published %q, and %q when dockerd was back", down.Statuses, down.Back)
	}
	res := labkit.AbsentBecause("%d starts published the node as ready, and the start without dockerd published it as not ready", starts)
	if early > 0 {
		res = labkit.ReproducedBecause("%d of %d starts published the node as not ready; first: %s", early, starts, first)
	}
	res.Measure("starts that published NotReady", float64(early), "")
	return res
}
