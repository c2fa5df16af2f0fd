// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
)

// swap is one time that a node was between stop and verified, by the journal of node swap, which
// the program that the lab is about does not write.
type swap struct {
	Node     string
	From, To time.Time
	End      string // done or restored; "": it did not end
}

// onNode is what a node is at the end of a stage.
type onNode struct {
	Name string
	// Kubelet is the release of the unit's file, PID its process, Healthy its /healthz.
	Kubelet string
	PID     int
	Healthy bool
	// Ready is the agent's pod, NodeReady the Node.
	Ready, NodeReady bool
	// Target and Phase are of the job on the node.
	Target, Phase string
}

// stage is a step of the lab, when nothing moves any more.
type stage struct {
	Name    string // of stages
	Seconds float64
	Nodes   []onNode
	// Holder has the lock.
	Holder string
	Swaps  []swap
	// Kept containers of the node's pods, and those that were recreated or are gone.
	Kept int
	Lost []string
	// Killed says what was killed or evicted, and which node left.
	Killed []string
	// Repeated attempts had failed.
	Repeated int
	// Status is the exit status of the stage's playbook.
	Status int
}

// loaded is the load over all stages.
type loaded struct{ Report load.Report }

// The stages, in order.
const (
	first    = "target original"
	ends     = "a kubelet that ends at once"
	undone   = "rollout undo"
	unready  = "a Node that stays not Ready"
	readied  = "rollout undo after that"
	refused  = "a flag that Holdfast refuses"
	again    = "another attempt"
	back     = "rollout undo to the first"
	atOnce   = "all pods at once, with kills"
	crashes  = "back, with kills of kubelets and dockerds"
	control  = "control: all pods at once, and a lock that everybody gets"
	nodes    = 3
	badNode  = "node2" // has the flag
	illNode  = "node3" // has the flags with which its Node is not Ready
	newNode  = "node4" // joins in the stage again, and leaves in back
	restored = "restored"
	done     = "done"
	running  = "running"
	failed   = "failed"
)

var stages = []string{first, ends, undone, unready, readied, refused, again, back, atOnce, crashes, control}

// overlap are two nodes that swapped at the same time, "" if none did.
func overlap(swaps []swap) string {
	for i, a := range swaps {
		for _, b := range swaps[i+1:] {
			if a.Node != b.Node && a.From.Before(b.To) && b.From.Before(a.To) {
				return a.Node + " and " + b.Node
			}
		}
	}
	return ""
}

// on are the nodes with a swap that ended so.
func (s *stage) on(end string) []string {
	var out []string
	for _, w := range s.Swaps {
		if w.End == end && !slices.Contains(out, w.Node) {
			out = append(out, w.Node)
		}
	}
	return out
}

// whole tells bad of nodes without a kubelet that answers and of lost containers, which no stage of
// either lab may have. It returns the nodes with Holdfast.
func (s *stage) whole(bad func(format string, a ...any)) (holdfast []string) {
	for _, n := range s.Nodes {
		if n.PID == 0 || !n.Healthy {
			bad("%s has no kubelet that answers", n.Name)
		}
		if strings.Contains(n.Kubelet, "+holdfast") {
			holdfast = append(holdfast, n.Name)
		} else if n.Kubelet != old {
			bad("%s has kubelet %s", n.Name, n.Kubelet)
		}
	}
	if len(s.Lost) > 0 {
		bad("%d containers were replaced: %s", len(s.Lost), strings.Join(s.Lost, ", "))
	}
	return holdfast
}

// wrong says what of a stage is not as it must be.
func (s *stage) wrong() (wrong []string) {
	bad := func(format string, a ...any) { wrong = append(wrong, s.Name+": "+fmt.Sprintf(format, a...)) }
	holdfast := len(s.whole(bad))
	allReady := 0
	for _, n := range s.Nodes {
		if n.Ready {
			allReady++
		}
	}
	for _, w := range s.Swaps {
		if w.End == "" {
			bad("the swap of %s did not end", w.Node)
		}
	}
	two := overlap(s.Swaps)
	if s.Name == control {
		if two == "" {
			bad("two nodes were never in a swap at once")
		}
		return wrong
	}
	if two != "" {
		bad("%s were in a swap at once", two)
	}
	want := func(ready, withHoldfast int) {
		if allReady != ready || holdfast != withHoldfast || s.Holder != "" {
			bad("%d pods are ready and %d nodes have Holdfast, want %d and %d; the lock is %q's", allReady, holdfast, ready, withHoldfast, s.Holder)
		}
	}
	switch s.Name {
	case first, undone:
		want(nodes, 0)
		if len(s.Swaps) > 0 {
			bad("%d swaps", len(s.Swaps))
		}
	case ends:
		if on := s.on(restored); len(on) != 1 || on[0] != s.Holder || len(s.Swaps) != 1 || holdfast != 0 || allReady == nodes {
			bad("%d swaps, %q restored their kubelet, %q has the lock, %d nodes have Holdfast, %d pods are ready", len(s.Swaps), on, s.Holder, holdfast, allReady)
		}
	case unready:
		ill := s.Nodes[slices.IndexFunc(s.Nodes, func(n onNode) bool { return n.Name == illNode })]
		if s.Holder != illNode || ill.NodeReady || ill.Ready || !strings.Contains(ill.Kubelet, "+holdfast") || !slices.Contains(s.on(done), illNode) {
			bad("%q has the lock; %s has kubelet %s, its Node is ready: %t, its pod: %t", s.Holder, illNode, ill.Kubelet, ill.NodeReady, ill.Ready)
		}
	case readied:
		want(nodes, 0)
	case refused:
		if s.Holder != badNode || slices.ContainsFunc(s.Swaps, func(w swap) bool { return w.Node == badNode }) || allReady == nodes || holdfast == nodes {
			bad("%q has the lock, %d nodes have Holdfast, %d pods are ready", s.Holder, holdfast, allReady)
		}
	case again:
		want(nodes+1, nodes+1)
		if !slices.Contains(s.on(done), newNode) {
			bad("%s was not swapped", newNode)
		}
	case back, atOnce, crashes:
		want(nodes, map[string]int{atOnce: nodes}[s.Name])
		if on := s.on(done); len(on) != nodes {
			bad("swapped to the end: %q", on)
		}
	}
	return wrong
}

func judge(h *history.History) labkit.Outcome {
	var wrong, facts []string
	seen := history.Of[stage](h)
	for i, s := range seen {
		if i >= len(stages) || s.Name != stages[i] || len(s.Nodes) != nodes+map[string]int{again: 1}[s.Name] || s.Kept+len(s.Lost) == 0 {
			return labkit.InconclusiveBecause("stage %d is %q, with %d nodes and %d containers", i+1, s.Name, len(s.Nodes), s.Kept+len(s.Lost))
		}
		if least := map[string]int{again: 1, back: 1, atOnce: 3, crashes: 3}[s.Name]; len(s.Killed) < least {
			return labkit.InconclusiveBecause("%s: only %q were killed", s.Name, s.Killed)
		}
		wrong = append(wrong, s.wrong()...)
		facts = append(facts, fmt.Sprintf("%s: %.0f s, %d swaps, %d attempts repeated, %d containers kept", s.Name, s.Seconds, len(s.Swaps), s.Repeated, s.Kept))
	}
	res := conclude(h, wrong, len(seen), len(stages), fmt.Sprintf("%d nodes were swapped to Holdfast and back, never two at once; a bad kubelet stopped the rollout; no container was recreated", nodes))
	res.Facts = facts
	return res
}

// conclude is the outcome of what was wrong in the stages that were seen, and of the load.
func conclude(h *history.History, wrong []string, seen, want int, passed string) labkit.Outcome {
	loads := history.Of[loaded](h)
	if len(loads) == 1 && loads[0].Report.Failed > loads[0].Report.TimedOut {
		wrong = append(wrong, loads[0].Report.String())
	}
	switch {
	case len(wrong) > 0:
		return labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	case seen != want || len(loads) != 1 || loads[0].Report.OK < 100:
		return labkit.InconclusiveBecause("%d stages of %d and %d loads were recorded", seen, want, len(loads))
	}
	return labkit.PassedBecause("%s; %s", passed, loads[0].Report.String())
}
