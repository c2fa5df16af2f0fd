// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// planned is how many swaps there are to come.
type planned struct{ Steps int }

// swapped is what was seen around one swap of a kubelet.
type swapped struct {
	Step           int
	What, Node, To string
	// Before and After are the node's containers. Control is the one that had to be
	// replaced.
	Before, After kubeletlab.Snapshot
	Control       string
	// Forecast is what kubectl-holdfast told before it.
	Forecast []kubeletlab.Told
	// NoHostPort says why the host port of Control did not answer, "" if it did.
	NoHostPort string
	// Requests of the load and those that Failed; addresses Removed from Endpoints.
	Requests, Failed, Removed int
}

var oracle = labkit.Oracle{
	Text: []string{
		"for each swap: failed requests, addresses removed from Endpoints, recreated containers, the host port",
		"every container is kept or recreated as kubectl-holdfast forecast said before the swap",
		"control for each swap: the image of one more pod is changed while the kubelet is down, and its container must be replaced; the kubelet must log for every pod that it compared the pod's containers",
		"a swap to v1.7.0 starts an old kubelet: the addresses that it removes are counted but not judged; containers and requests are judged",
	},
	Judge: judge,
}

// notAsTold says in what the swap was not as forecast. Nobody can tell that Control's image changes.
func (r swapped) notAsTold() []string {
	return kubeletlab.NotAsTold(r.Forecast, r.Before, r.After, func(t kubeletlab.Told) bool { return t.Pod+"/"+t.Container == r.Control })
}

func judge(h *history.History) labkit.Outcome {
	plan, rows := history.One[planned](h), history.Of[swapped](h)
	unsure := "" // the first reason why it cannot be told that nothing happened
	cannotTell := func(format string, a ...any) {
		if unsure == "" {
			unsure = fmt.Sprintf(format, a...)
		}
	}
	if len(rows) != plan.Steps || plan.Steps == 0 {
		cannotTell("%d swaps of %d were recorded", len(rows), plan.Steps)
	}
	facts := []string{fmt.Sprintf("%-42s %8s %6s %8s %9s %5s", "step", "requests", "failed", "removed", "recreated", "kept")}
	var wrong []string
	var requests, failed, removed, again int
	for i, r := range rows {
		if r.Step != i+1 {
			cannotTell("swap %d is missing", i+1)
		}
		if r.Requests == 0 {
			cannotTell("swap %d: the load sent nothing", r.Step)
		}
		if b, a := r.Before[r.Control].ID, r.After[r.Control].ID; b == "" || a == "" || a == b {
			cannotTell("swap %d: the container whose image changed was not replaced: nothing proves that containers were compared", r.Step)
		}
		d := kubeletlab.Compare(r.Before, r.After, func(k string, _ kubeletlab.Container) bool { return k != r.Control }) // sandboxes too
		recreated := len(d.Recreated) + len(d.Gone)
		if recreated+len(d.Kept) == 0 {
			cannotTell("swap %d: no container ran before it", r.Step)
		}
		if len(r.After) == 0 {
			recreated = 0 // nothing was listed, which cannotTell has: that is no container lost
		}
		facts = append(facts, fmt.Sprintf("%-42s %8d %6d %8d %9d %5d", fmt.Sprintf("%d. %s %s", r.Step, r.What, r.Node), r.Requests, r.Failed, r.Removed, recreated, len(d.Kept)))
		requests, failed, removed, again = requests+r.Requests, failed+r.Failed, removed+r.Removed, again+recreated
		var notTold []string
		if len(r.After) > 0 && recreated+len(d.Kept) > 0 {
			notTold = r.notAsTold()
		}
		for _, w := range notTold {
			if h.Variant != string(labkit.Ours) {
				cannotTell("step %d: %s", r.Step, w)
			}
			wrong = append(wrong, fmt.Sprintf("step %d (%s %s): %s", r.Step, r.What, r.Node, w))
		}
		add := func(n int, what string) {
			if n > 0 {
				wrong = append(wrong, fmt.Sprintf("step %d (%s %s): %d %s", r.Step, r.What, r.Node, n, what))
			}
		}
		add(r.Failed, "requests failed")
		add(recreated, "containers recreated")
		if r.NoHostPort != "" {
			add(1, fmt.Sprintf("host port lost (%s)", r.NoHostPort))
		}
		if r.To != old {
			add(r.Removed, "addresses removed")
		}
	}
	res := labkit.AbsentBecause("%d steps: no container recreated, no request failed, no address removed by the kubelet under test", plan.Steps)
	switch {
	case unsure != "" && (len(wrong) == 0 || h.Variant != string(labkit.Ours)):
		// What was seen on ours stays, whatever else was not.
		res = labkit.InconclusiveBecause("%s", unsure)
	case len(wrong) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(wrong, "; "))
	}
	res.Facts = facts
	res.Measure("requests", float64(requests), "")
	res.Measure("requests failed", float64(failed), "")
	res.Measure("addresses removed from Endpoints", float64(removed), "")
	res.Measure("containers recreated", float64(again), "")
	return res
}
