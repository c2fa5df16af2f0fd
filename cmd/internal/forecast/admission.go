// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdfast/cmd/internal/eviction"
	"holdfast/cmd/internal/finding"
)

// What a kubelet's start asks of each pod that runs, before it looks at its containers.

// admits: the target keeps pods that run when it starts, see patches/admission-across-restart.
func (c *checker) admits(a *answers, to target) bool {
	return to.holdfast && gate(a.line, "AdmissionAcrossRestart")
}

// pressure says whether the target's start fails all of the node's pods.
func (c *checker) pressure(f *forecast, a *answers, to target) (allFail bool) {
	said := map[string][]string{}
	for _, cond := range a.node.Status.Conditions {
		switch cond.Type {
		case "DiskPressure", "OutOfDisk", "MemoryPressure":
			if cond.Status == "True" {
				said[cond.Type] = append(said[cond.Type], "the Node has the condition "+cond.Type)
			}
		}
	}
	if a.summary != nil {
		set := c.table.Default(to.row, "eviction-hard")
		if a.line != nil {
			if v, ok := a.line.Last("eviction-hard"); ok {
				set = v
			}
		}
		for _, t := range eviction.Parse(set) {
			kind := "DiskPressure"
			if t.Signal == "memory.available" {
				kind = "MemoryPressure"
			}
			have, of := a.summary.amount(t.Signal)
			if have == nil {
				continue
			}
			all := 0.0
			if of != nil {
				all = *of
			}
			if is, _, text := t.Below(*have, all); is {
				said[kind] = append(said[kind], text)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(said)) {
		what, remedy := "every pod of the node would fail when the target starts", "free the disk first, or set --eviction-hard in the unit"
		if kind == "MemoryPressure" {
			what, remedy = "every pod without requests and limits would fail when the target starts", "free memory first"
		}
		text := strings.Join(said[kind], "; ")
		if c.admits(a, to) {
			// A static pod gets another UID there, so it is a new pod, and is refused.
			if kind == "DiskPressure" && slices.ContainsFunc(a.pods, func(p *pod) bool { return restarts(p, a, to) }) {
				f.add("HF105", f.node, text+": Holdfast refuses the node's static pods, which restart", remedy)
				continue
			}
			f.at(finding.Warn, "HF105", f.node, text+": Holdfast keeps the pods when it starts, and evicts by rank, one at a time, while the pressure lasts", remedy)
			continue
		}
		f.add("HF105", f.node, text+": "+what, remedy)
		allFail = allFail || kind != "MemoryPressure"
	}
	return allFail
}

// fail makes the rows of a pod those of one that the target's start fails.
func (f *forecast) fail(p *pod, rows []row) {
	for i := range rows {
		rows[i].Answer, rows[i].Why = isNew, "the kubelet's start fails the pod"
	}
	f.unready[p.Metadata.UID] = 0
}

// labels tells whether the node's labels still meet what the pod asks for, and returns whether the
// target's start fails it for that.
func (c *checker) labels(f *forecast, a *answers, to target, p *pod) (fails bool) {
	misfit := ""
	have := a.node.Metadata.Labels
	for _, k := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		if v, ok := have[k]; !ok || v != p.Spec.NodeSelector[k] {
			misfit = "its nodeSelector " + k
			break
		}
	}
	if aff := p.Spec.Affinity; misfit == "" && aff != nil && aff.NodeAffinity != nil && aff.NodeAffinity.Required != nil {
		if !slices.ContainsFunc(aff.NodeAffinity.Required.NodeSelectorTerms, func(t term) bool { return t.holds(have) }) {
			misfit = "its required node affinity"
		}
	}
	if misfit == "" {
		return false
	}
	object, text := f.node+": "+p.name(), "the node's labels no longer meet "+misfit
	if c.admits(a, to) {
		f.at(finding.Warn, "HF206", object, text+": Holdfast keeps the pod, a stock start or a reboot would fail it", "put the label back, or delete the pod")
		return false
	}
	f.add("HF206", object, text+": the kubelet's start fails the pod for good", "put the label back, or drain the pod")
	return true
}

// holds: all of a term's expressions are true, and there is one.
func (t term) holds(labels map[string]string) bool {
	for _, e := range t.MatchExpressions {
		v, ok := labels[e.Key]
		is := false
		switch e.Operator {
		case "In":
			is = ok && slices.Contains(e.Values, v)
		case "NotIn":
			is = !ok || !slices.Contains(e.Values, v)
		case "Exists":
			is = ok
		case "DoesNotExist":
			is = !ok
		case "Gt", "Lt":
			if len(e.Values) == 1 && ok {
				x, err := strconv.ParseInt(v, 10, 64)
				y, err2 := strconv.ParseInt(e.Values[0], 10, 64)
				is = err == nil && err2 == nil && (e.Operator == "Gt" && x > y || e.Operator == "Lt" && x < y)
			}
		}
		if !is {
			return false
		}
	}
	return len(t.MatchExpressions) > 0
}
