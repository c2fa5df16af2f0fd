// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package packageupgrade

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// leg is a step of the way, and what must be seen after it.
type leg struct {
	name, text, script string
	// upstream: a package of kubelet 1.9.11 in upstream's form is installed, and nothing is judged.
	upstream bool
	// version is in the version of the kubelet that runs; alone: it is Holdfast's, and the package
	// manager had nothing else to do, so no pod may leave its Service.
	version string
	alone   bool
	// kept are the kubelets that are then kept, and no other.
	kept []string
}

// apt installs from the folder of a list, and from no other.
func apt(list, command string) string {
	const options = `apt="apt-get -q -y -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Dir::Etc::sourceparts=- -o Dir::Etc::sourcelist=$OWN/apt/`
	return options + list + ".list\"\n$apt update\n$apt " + command
}

const holdfast = "+holdfast."

var legs = []leg{
	{name: "1.7.0 to Holdfast", text: "apt-get install kubelet, from the signed folder", script: apt("r9", "install kubelet"), version: holdfast, alone: true, kept: []string{old}},
	{name: "to the next", text: "apt-get install kubelet, of the next release", script: apt("r10", "install kubelet"), version: holdfast, alone: true, kept: []string{old}},
	{name: "to the one before", text: "apt-get install of the release before", script: apt("r9", "install --allow-downgrades kubelet=1.9.11+holdfast.9-1 kubectl-holdfast=1.9.11+holdfast.9-1"), version: holdfast, alone: true, kept: []string{old}},
	{name: "back to 1.7.0", text: "kubectl-holdfast node back", script: back, version: old, kept: []string{old}},
	{text: "install a package of kubelet v1.9.11 in upstream's form", upstream: true},
	{name: "1.9.11 to Holdfast, one of five", text: "apt-get dist-upgrade, of five packages", script: apt("five", "dist-upgrade"), version: holdfast, kept: []string{old, base}},
	{name: "back to 1.9.11", text: "kubectl-holdfast node back", script: back, version: base, kept: []string{old, base}},
	{name: "1.9.11 to Holdfast", text: "apt-get install kubelet, of the next release", script: apt("r10", "install kubelet"), version: holdfast, alone: true, kept: []string{old, base}},
	{name: "back to 1.9.11 again", text: "kubectl-holdfast node back", script: back, version: base, kept: []string{old, base}},
}

const back = "kubectl-holdfast node back --settle 10s"

// bound is how long, in seconds, the unit may be down: the kubelet's own stop included.
const bound = 10

// observed is what a leg did.
type observed struct {
	Leg string
	// Failed are the last lines of a command whose status was not 0.
	Failed string
	// Took and Down are seconds: of the command, and from the stop of the unit to its start.
	Took, Down    float64
	Active        string // of systemctl is-active
	Kubelet       string // version of the unit's process
	Package       string // version of the package kubelet
	Before, After kubeletlab.Snapshot
	Published     kubeletlab.Published
	Files         map[string]string // the administrator's that changed
	Kept          []string          // releases of upstream that are kept, byte by byte and with the unit
	KeptAll       int               // how many kubelets are kept
}

func (o observed) wrong(s leg) (wrong []string) {
	bad := func(format string, a ...any) { wrong = append(wrong, o.Leg+": "+fmt.Sprintf(format, a...)) }
	if o.Failed != "" {
		bad("it failed: %s", o.Failed)
	}
	if o.Active != "active" || !strings.Contains(o.Kubelet, s.version) || s.version != holdfast && o.Kubelet != s.version {
		bad("the unit is %s with kubelet %s, want %s", o.Active, o.Kubelet, s.version)
	}
	if o.Down > bound && s.alone || o.Down < 0 {
		bad("the unit was down for %.1f s", o.Down)
	}
	d := kubeletlab.Compare(o.Before, o.After, func(string, kubeletlab.Container) bool { return true })
	if len(d.Recreated)+len(d.Gone) > 0 {
		bad("%d containers were replaced: %v", len(d.Recreated)+len(d.Gone), append(d.Recreated, d.Gone...))
	}
	if s.alone && (len(o.Published.NotReady) > 0 || o.Published.Removed > 0) {
		bad("%s", o.Published)
	}
	if len(o.Files) > 0 {
		bad("changed files of the administrator: %v", o.Files)
	}
	if !slices.Equal(o.Kept, s.kept) || o.KeptAll != len(s.kept) {
		bad("the kept kubelets are %v, %d in all, want %v", o.Kept, o.KeptAll, s.kept)
	}
	return wrong
}

func judge(h *history.History) labkit.Outcome {
	var wrong, facts []string
	n, seen := 0, history.Of[observed](h)
	for _, s := range legs {
		if s.upstream {
			continue
		}
		if n == len(seen) {
			break
		}
		o := seen[n]
		n++
		if o.Leg != s.name || len(o.Before) == 0 {
			return labkit.InconclusiveBecause("step %d is %q, with %d containers before it; want %q", n, o.Leg, len(o.Before), s.name)
		}
		wrong = append(wrong, o.wrong(s)...)
		facts = append(facts, fmt.Sprintf("%s: package %s, %.1f s, the unit was down %.1f s; %s", o.Leg, o.Package, o.Took, o.Down, o.Published))
	}
	var res labkit.Outcome
	switch {
	case len(wrong) > 0:
		res = labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	case n != len(legs)-1:
		res = labkit.InconclusiveBecause("%d steps of %d were recorded", n, len(legs)-1)
	default:
		res = labkit.PassedBecause("%d steps: no container was replaced, and all earlier kubelets that must be kept are kept", n)
	}
	res.Facts = facts
	return res
}
