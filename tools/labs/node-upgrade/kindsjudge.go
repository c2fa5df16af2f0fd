// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"fmt"
	"maps"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// kindsSwapped is what one swap did to the node of the lab node-upgrade-kinds.
type kindsSwapped struct {
	To string // under test or v1.7.0
	// By is the command of kubectl-holdfast that swapped, nil if the lab did.
	By *kubeletlab.Swapped
	// Pods were ready before it.
	Pods          int
	Before, After kubeletlab.Snapshot
	// Forecast is what kubectl-holdfast told before it.
	Forecast []kubeletlab.Told
	// PodSeconds is for how long they were not Ready in the API, in sum; NodeSeconds the same of
	// the Node.
	PodSeconds, NodeSeconds float64
	// Removed addresses of Endpoints; Requests of the load and those that Failed.
	Removed, Requests, Failed int
	// Free is the free part of the node's disk, and Zone the label that has changed.
	Free float64
	Zone string
	// Slow: the runtime did not answer within the 10 s for which a kubelet of Holdfast waits
	// before it publishes the Node.
	Slow bool
}

// swapCommands are those of kubectl-holdfast, by where they lead.
var swapCommands = map[string]string{underTest: "node swap", old: "node back"}

// killed are the pods of which a container or sandbox does not run any more, or runs anew.
func (o kindsSwapped) killed() map[string]bool {
	d := kubeletlab.Compare(o.Before, o.After, func(string, kubeletlab.Container) bool { return true })
	pods := map[string]bool{}
	for _, keys := range [][]string{d.Recreated, d.Gone} {
		for _, k := range keys {
			pods[o.Before[k].Pod] = true
		}
	}
	return pods
}

// notAsTold says in what the swap was not as forecast, or as the command that swapped has told. A container of a pod that fails is told to be
// new, and is gone for good if nothing makes the pod again.
func (o kindsSwapped) notAsTold() []string {
	after := maps.Clone(o.After)
	for _, t := range o.Forecast {
		key := t.Pod + "/" + t.Container
		if _, runs := after[key]; t.Answer == "new" && !runs {
			after[key] = kubeletlab.Container{ID: "failed"}
		}
	}
	wrong := kubeletlab.NotAsTold(o.Forecast, o.Before, after, nil)
	if o.By != nil {
		if w := o.By.Wrong(o.Before, o.After); w != "" {
			wrong = append(wrong, w)
		}
	}
	return wrong
}

const nodeNotReady = "node not Ready"

var kindsOracle = labkit.Oracle{
	Text: []string{
		"for the swap to the kubelet under test: killed pods, seconds in which a pod or the Node was not Ready, addresses that left Endpoints, failed requests",
		"reproduced: one of these is not 0; absent: all are 0",
		"the swap back starts a stock kubelet 1.7.0: the same is counted but not judged",
		"in both directions every container is kept or recreated as kubectl-holdfast forecast said before the swap, and as node swap and node back say after it",
	},
	Judge: judgeKinds,
}

func judgeKinds(h *history.History) labkit.Outcome {
	swaps := map[string]kindsSwapped{}
	for _, o := range history.Of[kindsSwapped](h) {
		swaps[o.To] = o
	}
	facts := []string{"| swap | pods killed | pods not Ready, s | node not Ready, s | addresses left | requests failed |", "|---|---|---|---|---|---|"}
	var wrong, notTold []string
	var missing string
	slow := false
	var res labkit.Outcome
	for _, to := range []string{underTest, old} {
		o, ok := swaps[to]
		killed := len(o.killed())
		switch {
		case !ok:
			missing = fmt.Sprintf("no swap to the kubelet %s was recorded", to)
			continue
		case h.Variant == string(labkit.Ours) && (o.By == nil || o.By.Command != swapCommands[to]):
			missing = fmt.Sprintf("%s did not swap to the kubelet %s", swapCommands[to], to)
		case o.Requests == 0:
			missing = fmt.Sprintf("swap to the kubelet %s: the load sent nothing", to)
		case len(o.Before) == 0 || len(o.After) == 0:
			missing = fmt.Sprintf("swap to the kubelet %s: no container ran", to)
		case to == underTest && o.Pods != podsOfKinds():
			missing = fmt.Sprintf("%d pods were ready, want %d", o.Pods, podsOfKinds())
		case o.Free < 0.16 || o.Free > 0.30:
			missing = fmt.Sprintf("swap to the kubelet %s: %.0f %% of the disk is free", to, o.Free*100)
		case o.Zone != "b":
			missing = fmt.Sprintf("swap to the kubelet %s: the Node's label %s is %q", to, zoneLabel, o.Zone)
		}
		facts = append(facts, fmt.Sprintf("| %s | %d of %d | %.1f | %.1f | %d | %d of %d |", to, killed, o.Pods, o.PodSeconds, o.NodeSeconds, o.Removed, o.Failed, o.Requests))
		if missing == "" {
			for _, w := range o.notAsTold() {
				notTold = append(notTold, fmt.Sprintf("swap to the kubelet %s: %s", to, w))
			}
		}
		if to == old {
			continue
		}
		slow = o.Slow
		for _, n := range []struct {
			value float64
			what  string
			unit  string
		}{{float64(killed), "pods killed", ""}, {o.PodSeconds, "pods not Ready", "s"}, {o.NodeSeconds, nodeNotReady, "s"},
			{float64(o.Removed), "addresses removed from Endpoints", ""}, {float64(o.Failed), "requests failed", ""}} {
			res.Measure(n.what, n.value, n.unit)
			if n.value > 0 {
				wrong = append(wrong, strings.TrimSpace(fmt.Sprintf("%s: %.4g %s", n.what, n.value, n.unit)))
			}
		}
	}
	switch {
	case missing != "":
		res.Verdict, res.Why = labkit.Inconclusive, missing
	case len(notTold) > 0 && h.Variant != string(labkit.Ours):
		res.Verdict, res.Why = labkit.Inconclusive, strings.Join(notTold, "; ")
	case len(notTold) > 0:
		res.Verdict, res.Why = labkit.Reproduced, strings.Join(append(wrong, notTold...), "; ")
	case slow && len(wrong) == 1 && strings.HasPrefix(wrong[0], nodeNotReady):
		res.Verdict, res.Why = labkit.Inconclusive, "the container runtime did not answer for 10 s: on such a busy computer the reason why the node was not Ready is unknown"
	case len(wrong) > 0:
		res.Verdict, res.Why = labkit.Reproduced, strings.Join(wrong, "; ")
	default:
		res.Verdict, res.Why = labkit.Absent, fmt.Sprintf("%d pods of %d kinds: none is killed, all stay Ready and in Endpoints, no request fails", podsOfKinds(), len(allKinds))
	}
	res.Facts = facts
	return res
}
