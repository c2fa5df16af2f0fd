// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpointcompat

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// answered is what the host port of a pod answered to some requests.
type answered struct {
	Pod    string
	Port   int
	Bodies []string // or the error
}

func (a answered) fault() string {
	for _, b := range a.Bodies {
		if !strings.HasSuffix(b, " "+a.Pod) {
			return fmt.Sprintf("host port %d of pod %s: answered by %q", a.Port, a.Pod, b)
		}
	}
	return ""
}

// rulesLeft are the node's NAT rules that lead to the address which a pod had, when the
// kubelet of that release has had its time to remove them.
type rulesLeft struct {
	Pod, Kubelet, Address string
	Rules                 []string
}

func (o rulesLeft) fault() string {
	if len(o.Rules) == 0 {
		return ""
	}
	return fmt.Sprintf("%d NAT rule(s) still lead to %s, the address that pod %s had: %s", len(o.Rules), o.Address, o.Pod, strings.Join(o.Rules, " | "))
}

// logged is what the log of the kubelet under test says of checkpoints.
type logged struct {
	Refused  int      // checkpoints
	Stop     []string // what StopPodSandbox said of them
	Accepted bool     // both of v1.7.0
	// Early is that it had to stop a sandbox of pod gone before it knew the node's PodCIDR, as it
	// may if it was killed: kubenet fails, and 1.9 forgets the checkpoint nevertheless.
	Early bool `json:",omitempty"`
}

func readLog(s string) logged {
	l := logged{Refused: strings.Count(s, "Checksum of checkpoint"), Accepted: strings.Contains(s, "Sandbox checkpoints: accepted 2 ")}
	for _, line := range strings.Split(s, "\n") {
		l.Early = l.Early || strings.Contains(line, `teardown pod "gone_`+ns+`"`) && strings.Contains(line, "Kubenet needs a PodCIDR")
		if strings.Contains(line, "StopPodSandbox \"") && strings.Contains(line, "checkpoint") {
			_, why, _ := strings.Cut(line, "] ")
			l.Stop = append(l.Stop, why)
		}
	}
	return l
}

// wentBack is how often v1.7.0 then found that a checkpoint is corrupt.
type wentBack struct{ Refused int }

var oracle = labkit.Oracle{
	Text: []string{
		"no rule of the node's NAT table leads to the address of the deleted pod first, or to the earlier address of the pod gone; the host ports answer; no checkpoint was refused",
		"ours: v1.7.0 refuses no checkpoint either",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	var facts, wrong []string
	early := "" // a fault that Early explains
	log, back := history.One[logged](h), history.One[wentBack](h)
	ours := h.Variant == string(labkit.Ours)
	seen := map[string]bool{}
	for _, o := range history.Of[rulesLeft](h) {
		seen[o.Kubelet+" "+o.Pod] = true
		switch f := o.fault(); {
		case f == "":
		case o.Kubelet == old:
			// 1.9 names kubenet's chains otherwise than 1.7 does (kubernetes/kubernetes#55153),
			// so 1.7 cannot remove those rules, and they are no one's fault here.
			facts = append(facts, fmt.Sprintf("back to %s: %s", old, f))
		case o.Pod == "gone" && log.Early:
			early = f
		default:
			wrong = append(wrong, f)
		}
	}
	for _, a := range history.Of[answered](h) {
		seen["port of "+a.Pod] = len(a.Bodies) > 0
		if f := a.fault(); f != "" {
			wrong = append(wrong, f)
		}
	}
	if log.Refused > 0 {
		wrong = append(wrong, fmt.Sprintf("%d checkpoints refused", log.Refused))
	}
	wrong = append(wrong, log.Stop...)
	if back.Refused > 0 {
		f := fmt.Sprintf("kubelet %s found %d times that a checkpoint is corrupt", old, back.Refused)
		facts = append(facts, f)
		if ours {
			wrong = append(wrong, f)
		}
	}
	if early != "" && len(wrong) == 0 {
		return labkit.InconclusiveBecause("%s, but the kubelet did not know its PodCIDR when it stopped the sandbox, and then no checkpoint helps", early)
	}
	for _, what := range []string{base + " first", base + " gone", old + " second", old + " third", "port of second", "port of gone"} {
		if !seen[what] && !(ours && len(wrong) > 0) {
			return labkit.InconclusiveBecause("no observation of %s was recorded", what)
		}
	}
	if ours && !log.Accepted && len(wrong) == 0 {
		return labkit.InconclusiveBecause("the log of the kubelet under test does not say that it accepted checkpoints")
	}
	res := labkit.AbsentBecause("host ports are released at once, and %s accepts the checkpoints that Holdfast wrote", old)
	if len(wrong) > 0 {
		res = labkit.ReproducedBecause("%s", strings.Join(wrong, "; "))
	}
	res.Facts = facts
	res.Measure("checkpoints that the kubelet under test refused", float64(log.Refused), "")
	res.Measure("checkpoints that the old kubelet refused", float64(back.Refused), "")
	return res
}
