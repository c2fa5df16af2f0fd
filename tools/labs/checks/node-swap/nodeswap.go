// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeswap is the lab node-swap: kubectl-holdfast forecasts, swaps and verifies the kubelet
// of a node whose unit systemd runs. See tools/labs/checks/node-swap/README.md.
package nodeswap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/unitlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:     "node-swap",
		Folder:   "checks/node-swap",
		Summary:  "kubectl-holdfast forecasts, checks, makes and verifies the swap of a kubelet 1.7.0 under systemd, and goes back",
		Packages: []string{node.SystemdPackage},
		Test:     []labkit.Variant{labkit.Ours},
		Variants: []labkit.Variant{labkit.Ours},
		Needs:    labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet")),
		Steps:    steps,
		Oracle: labkit.Oracle{Text: []string{
			"in both directions each container is kept or recreated (docker's ID) as forecast had said; verify agrees",
			"a flag that Holdfast refuses stops the swap, and the same kubelet process still runs; a swap to a kubelet that exits at once is undone, and no container changes",
		}, Judge: judge},
		Timeout: func(labkit.Profile) time.Duration { return 12 * time.Minute },
	}}
}

type lab struct {
	e *labkit.Env
	*unitlab.Unit
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start the control plane v1.9.11 and a node whose kubelet v1.7.0 is a systemd unit", Do: l.start},
		{Text: fmt.Sprintf("create %d pods", len(kinds)), Do: l.create},
		{Text: "put a flag that Holdfast refuses into the unit; node swap must stop and change nothing", Do: l.refuse},
		{Text: "node swap to a kubelet that exits at once; the old kubelet must run again, with all containers", Do: l.ends},
		{Text: "forecast --to holdfast, node check, node swap, verify", Do: func(ctx context.Context) error {
			return l.swap(ctx, "holdfast", [][]string{{"check", "--new", l.new()}, {"swap", "--new", l.new(), "--settle", settle}})
		}},
		{Text: "forecast --to back, node back, verify", Do: func(ctx context.Context) error {
			return l.swap(ctx, "back", [][]string{{"back", "--settle", settle}})
		}},
		labkit.AllRun(func(ctx context.Context) error { return l.Cluster.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	var err error
	l.Unit, err = unitlab.Start(ctx, l.e, l.e.Stock(old, "kubelet"))
	return err
}

func (l *lab) create(ctx context.Context) error {
	for _, k := range kinds {
		if _, err := l.Cluster.Client.CreateYAML(ctx, ns, k.yaml(l.Node.Name)); err != nil {
			return err
		}
	}
	return l.ready(ctx)
}

func (l *lab) ready(ctx context.Context) error {
	return kubeletlab.WaitReady(ctx, l.Cluster.Client, ns, len(kinds), 3*time.Minute)
}

// settle is how long node swap looks before it compares; the lab itself waits for the end.
const settle = "30s"

// new is the kubelet under test.
func (l *lab) new() string { return l.e.UnderTest(base, "kubelet").Path }

// answered is what a run of the program gave.
type answered struct {
	kubeletlab.Answer
	status int
}

// ask runs the program on the node, and reads its -o json.
func (l *lab) ask(ctx context.Context, args ...string) (answered, error) {
	args = append(args, "-o", "json")
	if args[0] == "node" {
		args = append(args, "--keep-in", l.Keep)
	} else {
		args = append(args, "--kubeconfig", l.Kubeconfig)
	}
	out, err := l.Node.Output(ctx, l.Holdfast, args...)
	l.e.Logf("kubectl-holdfast %s: %v\n%s", strings.Join(args, " "), err, out)
	var a answered
	var status *exec.ExitError
	if errors.As(err, &status) {
		a.status = status.ExitCode()
	} else if err != nil {
		return a, err
	}
	a.Answer = kubeletlab.ParseAnswer(out)
	return a, os.WriteFile(l.plan(), []byte(a.Plan), 0o644)
}

// plan is the file of the last answer.
func (l *lab) plan() string { return l.e.Path("answer.json") }

// stop tries a swap that must leave the old kubelet.
func (l *lab) stop(ctx context.Context, what, file string) error {
	o := stopped{What: what}
	var err error
	if o.Before, err = kubeletlab.WaitStable(ctx, l.Node, 3*time.Second, time.Minute); err != nil {
		return err
	}
	if o.PID[0], err = l.PID(ctx); err != nil {
		return err
	}
	a, err := l.ask(ctx, "node", "swap", "--new", file, "--settle", settle)
	if err != nil {
		return err
	}
	o.Status, o.Codes = a.status, a.Codes
	if o.PID[1], err = l.PID(ctx); err != nil {
		return err
	}
	if o.Kubelet, err = l.Release(ctx); err != nil {
		return err
	}
	if o.After, err = l.settled(ctx); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

// settled waits until the kubelet has synced all pods, and nothing changes any more.
func (l *lab) settled(ctx context.Context) (kubeletlab.Snapshot, error) {
	if err := kubeletlab.WaitSynced(ctx, l.Node, len(kinds), 2*time.Minute); err != nil {
		return nil, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	// What is killed has 2 s.
	return kubeletlab.WaitStable(ctx, l.Node, 10*time.Second, 2*time.Minute)
}

func (l *lab) refuse(ctx context.Context) error {
	if err := l.Write(ctx, kubeletlab.ExtraFile, "KUBELET_EXTRA_ARGS=--api-servers="+l.Cluster.APIServer.URL+"\n"); err != nil {
		return err
	}
	if err := l.stop(ctx, refusedFlag, l.new()); err != nil {
		return err
	}
	return l.Node.Run(ctx, "rm", kubeletlab.ExtraFile)
}

func (l *lab) ends(ctx context.Context) error {
	file, err := kubeletlab.Ending(l.e, l.new())
	if err != nil {
		return err
	}
	return l.stop(ctx, endsAtOnce, file)
}

// swap forecasts, does what commands say, and verifies.
func (l *lab) swap(ctx context.Context, to string, commands [][]string) error {
	o := swapped{To: to, Status: map[string]int{}}
	var err error
	if o.Before, err = kubeletlab.WaitStable(ctx, l.Node, 3*time.Second, time.Minute); err != nil {
		return err
	}
	forecast := []string{"forecast", "--node", l.Node.Name, "--to", to}
	a, err := l.ask(ctx, append(forecast, "--fail-on", "new")...)
	if err != nil {
		return err
	}
	o.Status["forecast --fail-on new"] = a.status
	if a, err = l.ask(ctx, forecast...); err != nil {
		return err
	}
	o.Status["forecast"], o.Forecast = a.status, a.Told
	plan, err := os.ReadFile(l.plan())
	if err != nil {
		return err
	}
	for _, c := range commands {
		if a, err = l.ask(ctx, append([]string{"node"}, c...)...); err != nil {
			return err
		}
		o.Status[c[0]] = a.status
	}
	if o.After, err = l.settled(ctx); err != nil {
		return err
	}
	file := l.e.Path("plan-" + to)
	if err := os.WriteFile(file, plan, 0o644); err != nil {
		return err
	}
	if a, err = l.ask(ctx, "verify", "--plan", file); err != nil {
		return err
	}
	o.Status["verify"], o.Verify = a.status, a.Codes
	node, err := l.Cluster.Client.Get(ctx, kube.Nodes, "", l.Node.Name)
	if err != nil {
		return err
	}
	o.Kubelet = kube.String(node, "status", "nodeInfo", "kubeletVersion")
	l.e.Record(o)
	return nil
}
