// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// place names a cell: the kubelet that was there, and what happened.
type place struct{ Was, Event string }

// swapped is what became of a node's containers when its kubelet was replaced.
type swapped struct {
	Cell          place
	What, To      string // why, and the release
	Before, After kubeletlab.Snapshot
	// GatesOff are the pods that were started while the gates were off.
	GatesOff []string
}

// asked is what a pod's host port answered, or the error.
type asked struct {
	Cell   place
	Pod    string
	Port   int
	Answer string
}

// said is the value of holdfast_predecessor_info with the labels that it must have.
type said struct {
	Cell            place
	Release, Source string
	Value           float64
}

// overridden is what the kubelet says of an override that it must refuse.
type overridden struct {
	Cell    place
	Logged  bool
	Refused float64 // the metric
}

// tookDown is how many checkpoints the last kubelet refused when it deleted Pods pods.
type tookDown struct {
	Cell          place
	Kubelet       string
	Pods, Refused int
}

// lived is the end of a cell.
type lived struct{ Cell place }

var oracle = labkit.Oracle{
	Text: []string{
		"no swap to Holdfast or back recreates a container, after the kubelet's log has shown that it compared each; each host port answers",
		"the last kubelet refuses no checkpoint, after its log has shown that kubenet took each sandbox down; Holdfast's metric names the previous kubelet",
	},
	Judge: judge,
}

// found is what was seen of a cell.
type found struct {
	wrong, must                   []string // must is what cannot be kept, with the reason
	looks                         int      // comparisons of a container that found it kept
	back, asked, said, down, over int
	lived                         bool
}

func judge(h *history.History) labkit.Outcome {
	cells := map[place]*found{}
	at := func(p place) *found {
		if cells[p] == nil {
			cells[p] = &found{}
		}
		return cells[p]
	}
	bad := func(p place, format string, a ...any) { at(p).wrong = append(at(p).wrong, fmt.Sprintf(format, a...)) }
	for _, o := range history.Of[swapped](h) {
		d := kubeletlab.Compare(o.Before, o.After, func(string, kubeletlab.Container) bool { return true })
		at(o.Cell).looks += len(d.Kept)
		if o.What == wayBack && len(o.Before) > 0 {
			at(o.Cell).back++
		}
		var lost []string
		for _, key := range append(d.Recreated, d.Gone...) {
			name := strings.Split(key, "/")[1]
			if slices.Contains(o.GatesOff, name) && o.To < base && !o.Before[key].Sandbox {
				at(o.Cell).must = append(at(o.Cell).must, fmt.Sprintf("%s: %s was started while the gates were off and has the hash of 1.9", o.What, key))
				continue
			}
			lost = append(lost, key)
		}
		if len(lost) > 0 {
			bad(o.Cell, "%s: %d of %d recreated, first %s", o.What, len(lost), len(o.Before), lost[0])
		}
	}
	for _, o := range history.Of[asked](h) {
		at(o.Cell).asked++
		if !strings.HasSuffix(o.Answer, " "+o.Pod) {
			bad(o.Cell, "host port %d of %s: answered by %q", o.Port, o.Pod, o.Answer)
		}
	}
	for _, o := range history.Of[said](h) {
		at(o.Cell).said++
		if o.Value != 1 {
			bad(o.Cell, "holdfast_predecessor_info does not say release %s by %s", o.Release, o.Source)
		}
	}
	for _, o := range history.Of[overridden](h) {
		at(o.Cell).over++
		if !o.Logged {
			bad(o.Cell, "the log does not refuse the bad override")
		}
		if o.Refused != 1 {
			bad(o.Cell, "holdfast_predecessor_override_refused is %v", o.Refused)
		}
	}
	for _, o := range history.Of[tookDown](h) {
		if o.Pods > 0 {
			at(o.Cell).down++
		}
		if o.Refused > 0 {
			bad(o.Cell, "%s refused a checkpoint, %d times", o.Kubelet, o.Refused)
		}
	}
	for _, o := range history.Of[lived](h) {
		at(o.Cell).lived = true
	}
	return sum(h, cells)
}

// sum holds each planned cell against what was seen of it.
func sum(h *history.History, cells map[place]*found) labkit.Outcome {
	var wrong, open []string
	facts := []string{fmt.Sprintf("%-13s %-24s %6s  %s", "was there", "then", "looks", "wrong")}
	looks, n := 0, 0
	planned := plan(labkit.Variant(h.Variant), labkit.Profile(h.Profile))
	for _, w := range order {
		for _, ev := range planned[w] {
			x := cells[place{w.name, ev}]
			n++
			if x == nil {
				open = append(open, fmt.Sprintf("%s, %s: the case did not complete", w.name, ev))
				continue
			}
			switch {
			case !x.lived:
				open = append(open, fmt.Sprintf("%s, %s: the case did not complete", w.name, ev))
			case x.back == 0 || x.asked == 0 || x.down != 1 || h.Variant != string(labkit.Stock) && x.said == 0 || (ev == "bad override") != (x.over == 1):
				open = append(open, fmt.Sprintf("%s, %s: not all observations were recorded: %+v", w.name, ev, *x))
			}
			facts = append(facts, fmt.Sprintf("%-13s %-24s %6d  %s", w.name, ev, x.looks, list(x.wrong)))
			for _, m := range x.must {
				facts = append(facts, fmt.Sprintf("%-13s %-24s         cannot be kept: %s", "", "", m))
			}
			for _, s := range x.wrong {
				wrong = append(wrong, fmt.Sprintf("%s, %s: %s", w.name, ev, s))
			}
			looks += x.looks
		}
	}
	res := labkit.AbsentBecause("%d cases, %d comparisons of a container or sandbox: all kept, no host port lost", n, looks)
	switch {
	case len(open) > 0 && (len(wrong) == 0 || h.Variant != string(labkit.Ours)):
		res = labkit.InconclusiveBecause("%s", open[0])
	case len(wrong) > 0:
		res = labkit.ReproducedBecause("%s", list(append(wrong, open...)))
	}
	res.Facts = facts
	return res
}

func list(l []string) string {
	if len(l) == 0 {
		return "nothing"
	}
	return strings.Join(l, "; ")
}
