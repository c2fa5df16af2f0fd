// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhashcompat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// swapped is what became of the node's containers in one step of the chain.
type swapped struct {
	Step   int
	Name   string // from → to
	Judged bool
	// By is the command of kubectl-holdfast that swapped, nil if the lab did.
	By *kubeletlab.Swapped
	// Forecast is what kubectl-holdfast told before it.
	Forecast []kubeletlab.Told
	// False is what it told of another kubelet, a control.
	False  []kubeletlab.Told
	Before kubeletlab.Snapshot
	After  kubeletlab.Snapshot
	// CountsBefore and CountsAfter are restart counts by "pod/container". Changes is
	// the one that the pod changed must have.
	CountsBefore, CountsAfter map[string]int64
	Changes                   int64
	// HostPorts has, by kind, why its host port did not answer; "" if it did.
	HostPorts map[string]string
}

// outcome is how one step is judged.
type outcome struct {
	recreated, kept   int
	unexpected, other []string
	facts             []string
	// notTold is in what the swap was not as the forecast had told.
	notTold []string
}

func (s setup) oracle() labkit.Oracle {
	o := labkit.Oracle{
		Text: []string{
			"for each swap: container IDs and start times in docker, restart counts in the API, requests to host ports; static pods separately",
		},
		Judge: func(h *history.History) labkit.Outcome { return s.judge(h) },
	}
	if s.forecasts {
		o.Text = append(o.Text,
			"every container, including those of static pods, is kept or recreated as kubectl-holdfast forecast said before the swap",
			"in the short profile of ours node swap and node back replace the kubelet, and say how many containers were kept",
			"controls: a forecast that says kept, or new, of every container, and the forecast for another kubelet, must not come true")
	}
	if s.onlySecurity {
		o.Text = append(o.Text, "stock recreates containers with a securityContext, and no other: otherwise the run shows another incident")
	}
	o.Text = append(o.Text, "control for each swap: the image of one pod is changed while the kubelet is down, and that pod must be replaced, once; a swap is over when the new kubelet has logged for every pod that it compared the pod's containers")
	return o
}

func isStatic(key string) bool { return strings.HasPrefix(key, ns+"/static-") }

// notAsTold says in what the swap was not as a forecast. Nobody can tell that the image of a pod will
// be changed. On the way back forecast does not know which release's UID a static pod has.
func (s swapped) notAsTold(told []kubeletlab.Told) []string {
	return kubeletlab.NotAsTold(told, s.Before, s.After, func(t kubeletlab.Told) bool {
		return t.Pod == ns+"/"+changed || strings.Contains(s.Name, " → v") && t.Answer == "?" && isStatic(t.Pod)
	})
}

// controls are the false forecasts, of which a run must notice each in one swap at least: without that,
// a forecast that came true says nothing. Upstream's kubelet recreates every container, so there a
// forecast that always says so is true.
func controls(ours bool) map[string]func(s swapped) []kubeletlab.Told {
	all := map[string]func(s swapped) []kubeletlab.Told{
		"one that says kept of every container": func(s swapped) []kubeletlab.Told { return kubeletlab.All(s.Forecast, "kept") },
		"the one for another kubelet":           func(s swapped) []kubeletlab.Told { return s.False },
	}
	if ours {
		all["one that says new of every container"] = func(s swapped) []kubeletlab.Told { return kubeletlab.All(s.Forecast, "new") }
	}
	return all
}

// look judges one swap of a node with pods of these kinds. The error is why it says nothing.
func (on setup) look(s swapped, kinds []kind) (outcome, error) {
	var o outcome
	// must is what this step has to recreate. may is what only the old kubelet can recreate
	// and only it can have started: it ignores a field of the spec.
	must, may := map[string]bool{}, map[string]bool{}
	for _, k := range kinds {
		may[ns+"/"+k.name+"/main"] = on.ignored(k)
		if on.ignored(k) && s.Step == 0 {
			must[ns+"/"+k.name+"/main"] = true
		}
	}
	must[ns+"/"+changed+"/main"] = true
	d := kubeletlab.Compare(s.Before, s.After, func(key string, c kubeletlab.Container) bool { return !isStatic(key) && !c.Sandbox })
	boxes := kubeletlab.Compare(s.Before, s.After, func(key string, c kubeletlab.Container) bool { return !isStatic(key) && c.Sandbox })
	static := kubeletlab.Compare(s.Before, s.After, func(key string, c kubeletlab.Container) bool { return isStatic(key) })
	problem := func(format string, a ...any) { o.other = append(o.other, fmt.Sprintf(format, a...)) }
	for _, key := range d.Recreated {
		if must[key] || may[key] {
			delete(must, key)
			continue
		}
		o.recreated++
		o.unexpected = append(o.unexpected, key)
	}
	if on.forecasts {
		o.notTold = s.notAsTold(s.Forecast)
	}
	if s.By != nil {
		all := kubeletlab.Compare(s.Before, s.After, func(_ string, c kubeletlab.Container) bool { return !c.Sandbox })
		// On a busy computer one may be recreated after they were counted.
		if s.By.Kept < len(all.Kept) {
			o.notTold = append(o.notTold, fmt.Sprintf("%s told of %d kept containers, and %d were kept", s.By.Command, s.By.Kept, len(all.Kept)))
		}
	}
	o.kept = len(d.Kept)
	if o.kept+o.recreated == 0 {
		return o, fmt.Errorf("%s: no container ran before it", s.Name)
	}
	if !s.Judged && must[ns+"/"+changed+"/main"] {
		return o, fmt.Errorf("%s: the pod whose image changed was not replaced: nothing proves that containers were compared", s.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(must)) {
		problem("%s was not recreated, although its spec differs from what runs", key)
	}
	for _, key := range d.Gone {
		problem("%s no longer runs", key)
	}
	if n := len(boxes.Recreated) + len(boxes.Gone); n > 0 {
		problem("%d of %d sandboxes recreated", n, n+len(boxes.Kept))
	}
	if !s.Judged {
		o.other = nil
	}
	o.facts = append(o.facts, fmt.Sprintf("%s: static pod: %d of %d containers recreated", s.Name,
		len(static.Recreated)+len(static.Gone), len(static.Recreated)+len(static.Gone)+len(static.Kept)))
	if s.Judged && len(o.unexpected) == 0 {
		for _, key := range d.Kept {
			k := strings.TrimPrefix(key, ns+"/")
			if s.CountsAfter[k] != s.CountsBefore[k] {
				problem("the restart count of %s changed from %d to %d, although its container is the same", k, s.CountsBefore[k], s.CountsAfter[k])
			}
		}
		if got := s.CountsAfter[changed+"/main"]; got != s.Changes {
			problem("the pod whose image changes in each step was restarted %d times, want %d", got, s.Changes)
		}
	}
	for _, k := range kinds {
		if k.hostPort == 0 {
			continue
		}
		why, ok := s.HostPorts[k.name]
		if !ok {
			return o, fmt.Errorf("%s: host port %d got no request", s.Name, k.hostPort)
		}
		if why != "" {
			problem("host port %d of %s: %s", k.hostPort, k.name, why)
		}
	}
	return o, nil
}

// unsecured are the containers of these that have no securityContext.
func unsecured(keys []string, kinds []kind) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(kinds, func(k kind) bool { return k.secured() && strings.HasPrefix(key, ns+"/"+k.name+"/") })
	})
}

func (on setup) judge(h *history.History) labkit.Outcome {
	all := history.Of[swapped](h)
	want := on.chain(labkit.Variant(h.Variant), labkit.Profile(h.Profile))
	kinds := on.kinds(labkit.Variant(h.Variant), labkit.Profile(h.Profile))
	var facts, problems []string
	var firstBad, unsure string // unsure is why it cannot be told that nothing happened
	ours := h.Variant == string(labkit.Ours)
	bad, good := 0, 0
	for i, s := range all {
		if i >= len(want) || s.Step != i || s.Judged != want[i].judged() {
			unsure = fmt.Sprintf("swap %d is %s, which is not the planned one", i+1, s.Name)
			break
		}
		if s.By == nil && on.byProgram(labkit.Variant(h.Variant), labkit.Profile(h.Profile)) {
			unsure = cmp.Or(unsure, s.Name+": kubectl-holdfast did not swap")
		}
		o, err := on.look(s, kinds)
		if err != nil {
			unsure = cmp.Or(unsure, err.Error())
			continue
		}
		verdict := "not judged"
		if s.Judged {
			verdict = "judged"
			bad += len(o.unexpected)
			good += o.kept
			if firstBad == "" && len(o.unexpected) > 0 {
				firstBad = fmt.Sprintf("%s recreated %d of %d, first %s", s.Name, len(o.unexpected), o.recreated+o.kept, o.unexpected[0])
			}
			problems = append(problems, o.other...)
		}
		if other := unsecured(o.unexpected, kinds); on.onlySecurity && s.Judged && len(other) > 0 {
			unsure = cmp.Or(unsure, fmt.Sprintf("%s recreated %s, which has no securityContext", s.Name, other[0]))
		}
		for _, w := range o.notTold {
			problems = append(problems, s.Name+": "+w)
			unsure = cmp.Or(unsure, s.Name+": "+w)
		}
		facts = append(facts, o.facts...)
		facts = append(facts, fmt.Sprintf("%-28s %3d containers recreated, %3d kept (%s)", s.Name+":", o.recreated, o.kept, verdict))
		for _, p := range o.other {
			facts = append(facts, s.Name+": "+p)
		}
	}
	for name, told := range controls(ours) {
		if on.forecasts && !slices.ContainsFunc(all, func(s swapped) bool { return len(s.notAsTold(told(s))) > 0 }) {
			unsure = cmp.Or(unsure, "no swap shows that a false forecast is noticed: "+name)
		}
	}
	var res labkit.Outcome
	switch {
	case ours && len(problems) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(problems, "; "))
	case ours && bad > 0:
		res = labkit.ReproducedBecause("%s", firstBad)
	case unsure != "":
		res = labkit.InconclusiveBecause("%s", unsure)
	case len(all) != len(want):
		res = labkit.InconclusiveBecause("%d swaps of %d were recorded", len(all), len(want))
	case bad > 0:
		res = labkit.ReproducedBecause("%s", firstBad)
	default:
		res = labkit.AbsentBecause("no container was recreated except because of its own spec; %d comparisons of a container, each was kept", good)
	}
	res.Facts = facts
	return res
}
