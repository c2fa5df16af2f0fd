// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

// checked is what node check said of a kubelet with a unit.
type checked struct {
	Kubelet, Unit string
	Yes           bool
	Output        string
}

// swappedUnit is a swap to a kubelet with the recommended flags.
type swappedUnit struct {
	Kubelet string
	// By is the command that swapped, nil for the first one.
	By            *kubeletlab.Swapped
	Before, After kubeletlab.Snapshot
}

// reported is what a stock kubelet with the recommended unit told the API server: its version, and
// whether all pods were ready and ran.
type reported struct{ Kubelet, Version, NotReady string }

// Names of units in checked, where they are not those of unitRows.
const (
	unitAPIServers  = "--api-servers"
	unitRecommended = "recommended"
	unitGate        = "recommended, with a gate of ours"
)

// What node check says of flags, in its JSON.
const (
	refusesServers = "does not accept --api-servers"
	refusesGate    = "does not accept LegacyContainerHashWrite"
)

var unitSwaps = []string{old, underTest, old, underTest}

// reporters are the stock kubelets that get the unit after the swaps.
func reporters(profile string) []string {
	if profile == string(labkit.Long) {
		return []string{middle, base}
	}
	return []string{base}
}

func unitSteps(e *labkit.Env) []labkit.Step {
	r := &units{e: e}
	var before kubeletlab.Snapshot
	steps := []labkit.Step{
		{Text: "start the control plane v1.9.11 and a node whose kubelet v1.7.0 has --api-servers; three pods", Do: func(ctx context.Context) error {
			return r.startUnits(ctx, e.Stock(old, "kubelet"), func(a *kube.APIServer) []string {
				return append([]string{"--api-servers=" + a.URL, "--kubeconfig=" + node.UnitKubeconfig}, authz...)
			})
		}},
		{Text: "run node check for Holdfast: it must refuse --api-servers, a flag that Holdfast does not have", Do: func(ctx context.Context) error {
			var err error
			if before, err = kubeletlab.Take(ctx, r.node); err != nil {
				return err
			}
			return r.check(ctx, underTest, unitAPIServers)
		}},
	}
	for i, release := range unitSwaps {
		how := map[bool]string{true: "node swap", false: "node back"}[release == underTest]
		if i == 0 {
			how = "a restart"
		}
		steps = append(steps, labkit.Step{Text: fmt.Sprintf("%s to %s with --kubeconfig=… --require-kubeconfig=true, and run node check for %s and for Holdfast", how, release, old),
			Do: func(ctx context.Context) error {
				by, err := r.byProgram(ctx, release)
				if err != nil {
					return err
				}
				after, err := r.synced(ctx)
				if err != nil {
					return err
				}
				e.Record(swappedUnit{release, by, before, after})
				if err := r.check(ctx, old, unitRecommended); err != nil {
					return err
				}
				return r.check(ctx, underTest, unitRecommended)
			}})
	}
	steps = append(steps, labkit.Step{Text: "the same unit with a gate of Holdfast: node check must accept it for Holdfast and refuse it for " + old, Do: func(ctx context.Context) error {
		if err := r.swap(ctx, r.program(underTest), append([]string{"--feature-gates=LegacyContainerHashWrite=true,AppArmor=true"}, recommended...)); err != nil {
			return err
		}
		if err := r.check(ctx, underTest, unitGate); err != nil {
			return err
		}
		return r.check(ctx, old, unitGate)
	}})
	for _, release := range reporters(string(e.Profile)) {
		steps = append(steps, labkit.Step{Text: "swap to the stock kubelet " + release + " with the recommended unit", Do: func(ctx context.Context) error {
			return r.report(ctx, release)
		}})
	}
	return append(steps, labkit.AllRun(func(ctx context.Context) error { return r.c.Alive(ctx) }))
}

// report swaps to a stock kubelet and records what comes of it within some time.
func (r *units) report(ctx context.Context, release string) error {
	if err := r.swap(ctx, r.program(release), recommended); err != nil {
		return err
	}
	o := reported{Kubelet: release}
	_, err := r.c.Client.WaitFor(ctx, kube.Nodes, "", "node1", 30*time.Second, "reported by "+release, func(n *kube.Object) (bool, error) {
		o.Version = kube.String(n, "status", "nodeInfo", "kubeletVersion")
		return o.Version == release, nil
	})
	if err == nil {
		if err := kubeletlab.WaitSynced(ctx, r.node, 3, time.Minute); err != nil {
			return err
		}
		err = r.ready(ctx)
	}
	if err == nil {
		// What the API says may be from before.
		_, err = r.census(ctx, 6, time.Minute)
	}
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		o.NotReady = err.Error()
	}
	r.e.Record(o)
	return nil
}

func judgeUnits(h *history.History) labkit.Outcome {
	var wrong []string
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	said := map[string]int{}
	for _, c := range history.Of[checked](h) {
		said[c.Kubelet+" "+c.Unit]++
		yes, because := true, ""
		switch {
		case c.Unit == unitAPIServers:
			yes, because = false, refusesServers
		case c.Unit == unitGate && c.Kubelet == old:
			yes, because = false, refusesGate
		}
		if c.Yes != yes || !strings.Contains(c.Output, because) {
			bad("node check for %s with the unit %q accepts it: %t, want %t %s: %s", c.Kubelet, c.Unit, c.Yes, yes, because, c.Output)
		}
	}
	swaps := history.Of[swappedUnit](h)
	n := 0
	for i, s := range swaps {
		d := kubeletlab.Compare(s.Before, s.After, func(string, kubeletlab.Container) bool { return true })
		if lost := len(d.Recreated) + len(d.Gone); lost > 0 {
			bad("swap %d, to %s: %d of %d containers were replaced", i+1, s.Kubelet, lost, len(s.Before))
		}
		if n = len(s.Before); n == 0 {
			return labkit.InconclusiveBecause("swap %d: no container ran before it", i+1)
		}
		if by := s.By; by != nil {
			if w := by.Wrong(s.Before, s.After); w != "" {
				bad("swap %d, to %s: %s", i+1, s.Kubelet, w)
			}
		} else if i > 0 {
			return labkit.InconclusiveBecause("swap %d was not made by kubectl-holdfast", i+1)
		}
	}
	var stock []string
	for _, o := range history.Of[reported](h) {
		stock = append(stock, o.Kubelet)
		if o.Version != o.Kubelet || o.NotReady != "" {
			bad("with %s the node reports %s; %s", o.Kubelet, o.Version, o.NotReady)
		}
	}
	if len(wrong) > 0 {
		return labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	}
	for what, want := range map[string]int{underTest + " " + unitAPIServers: 1, old + " " + unitRecommended: len(unitSwaps), underTest + " " + unitRecommended: len(unitSwaps),
		underTest + " " + unitGate: 1, old + " " + unitGate: 1} {
		if said[what] != want {
			return labkit.InconclusiveBecause("node check ran %d times for %s, want %d", said[what], what, want)
		}
	}
	if len(swaps) != len(unitSwaps) || fmt.Sprint(stock) != fmt.Sprint(reporters(h.Profile)) {
		return labkit.InconclusiveBecause("%d swaps were recorded, and reports of %v", len(swaps), stock)
	}
	return labkit.PassedBecause("one unit works for %s, Holdfast and stock %s; all %d containers survived %s → Holdfast → %s → Holdfast", old, strings.Join(stock, " and "), n, old, old)
}

// rowSeen is what came of a row.
type rowSeen struct {
	Kubelet, Unit string
	// Started says whether the kubelet did, and if not, Ends that the log said the
	// row's words.
	Started, Ends bool
	// Standalone: the log of the kubelet that started says that it has no API client.
	Standalone bool
	// Before and After are the node's containers: after the bound, or when none was left.
	Before, After kubeletlab.Snapshot
	Seconds       float64
}

func standaloneText() []string {
	out := []string{"node check refuses each row's unit"}
	for _, r := range unitRows {
		out = append(out, fmt.Sprintf("%s, %s: %s", r.kubelet, r.unit, r.want()))
	}
	return out
}

func standaloneSteps(e *labkit.Env) []labkit.Step {
	r := &units{e: e}
	steps := []labkit.Step{{Text: "start the control plane v1.9.11 and a node with the kubelet under test; three pods", Do: func(ctx context.Context) error {
		return r.startUnits(ctx, e.UnderTest(base, "kubelet"), func(*kube.APIServer) []string { return recommended })
	}}}
	for _, row := range unitRows {
		steps = append(steps, labkit.Step{Text: fmt.Sprintf("the kubelet under test with %s, node check, then the swap to %s; back to the kubelet under test with the recommended flags", row.unit, row.kubelet),
			Do: func(ctx context.Context) error {
				if err := r.row(ctx, row); err != nil {
					return err
				}
				if err := r.swap(ctx, r.program(underTest), recommended); err != nil {
					return err
				}
				if err := kubeletlab.WaitSynced(ctx, r.node, 3, time.Minute); err != nil {
					return err
				}
				return r.ready(ctx)
			}})
	}
	return append(steps, labkit.AllRun(func(ctx context.Context) error { return r.c.Alive(ctx) }))
}

// row does one row.
func (r *units) row(ctx context.Context, row unitRow) error {
	p := r.program(row.kubelet)
	if len(row.flags) > 0 {
		// The way back as it comes about: ours runs with this unit.
		if _, err := r.swapAndSync(ctx, r.program(underTest), row.flags); err != nil {
			return err
		}
		if err := r.ready(ctx); err != nil {
			return err
		}
		if err := r.check(ctx, row.kubelet, row.unit); err != nil {
			return err
		}
	}
	o := rowSeen{Kubelet: row.kubelet, Unit: row.unit}
	var err error
	if o.Before, err = r.census(ctx, 6, 2*time.Minute); err != nil {
		return err
	}
	began := time.Now()
	before, err := os.ReadFile(r.e.Path("node1-kubelet.log"))
	if err != nil {
		return err
	}
	failed := r.swap(ctx, p, row.flags)
	if ctx.Err() != nil {
		return failed
	}
	if o.Started = failed == nil; !o.Started {
		// The help text follows an unknown flag, so the end of the log does not say.
		log, err := os.ReadFile(r.e.Path("node1-kubelet.log"))
		if err != nil {
			return err
		}
		if o.Ends = row.ends != "" && strings.Contains(string(log[len(before):]), row.ends); !o.Ends {
			return failed
		}
		if o.After, err = kubeletlab.Take(ctx, r.node); err != nil {
			return err
		}
		r.e.Record(o)
		return nil
	}
	if len(row.flags) == 0 {
		if err := r.check(ctx, row.kubelet, row.unit); err != nil {
			return err
		}
	}
	text, err := r.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	o.Standalone = strings.Contains(text, "No API client") || strings.Contains(text, "standalone mode")
	if o.After, err = r.census(ctx, 0, 90*time.Second); ctx.Err() != nil {
		return err
	}
	o.Seconds = time.Since(began).Seconds()
	r.e.Record(o)
	return nil
}

func judgeStandalone(h *history.History) labkit.Outcome {
	var wrong, facts []string
	refused := map[string]bool{}
	for _, c := range history.Of[checked](h) {
		refused[c.Kubelet+" "+c.Unit] = !c.Yes
		if c.Yes {
			wrong = append(wrong, fmt.Sprintf("%s with %s: node check says yes: %s", c.Kubelet, c.Unit, c.Output))
		}
	}
	seen := history.Of[rowSeen](h)
	for i, o := range seen {
		name := o.Kubelet + " with " + o.Unit
		if i >= len(unitRows) || unitRows[i].kubelet != o.Kubelet || unitRows[i].unit != o.Unit || len(o.Before) == 0 {
			return labkit.InconclusiveBecause("row %d is %s, with %d containers before it", i+1, name, len(o.Before))
		}
		d := kubeletlab.Compare(o.Before, o.After, func(string, kubeletlab.Container) bool { return true })
		switch row := unitRows[i]; {
		case row.ends != "" && o.Started:
			wrong = append(wrong, name+": it starts")
		case row.ends != "" && !o.Ends:
			wrong = append(wrong, name+": it exits for another reason")
		case row.ends != "" && len(d.Kept) != len(o.Before):
			wrong = append(wrong, fmt.Sprintf("%s: only %d of %d containers keep running", name, len(d.Kept), len(o.Before)))
		case row.ends != "":
			facts = append(facts, fmt.Sprintf("%s: exits at its start, all %d containers keep running", name, len(o.Before)))
		case !o.Started || !o.Standalone:
			wrong = append(wrong, name+": its log does not say that it has no API client")
		case len(o.After) > 0:
			wrong = append(wrong, fmt.Sprintf("%s: %d containers are left", name, len(o.After)))
		default:
			facts = append(facts, fmt.Sprintf("%s: standalone, no container left %.0f s after the swap began", name, o.Seconds))
		}
	}
	var res labkit.Outcome
	switch {
	case len(wrong) > 0:
		res = labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	case len(seen) != len(unitRows) || len(refused) != len(unitRows):
		res = labkit.InconclusiveBecause("%d rows of %d and %d answers of node check were recorded", len(seen), len(unitRows), len(refused))
	default:
		res = labkit.PassedBecause("%d rows, each as the runbook says", len(seen))
	}
	res.Facts = facts
	return res
}
