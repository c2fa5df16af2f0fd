// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package costatscale is the check cost-at-scale: what a controller manager takes to roll
// out many Deployments on kubemark's hollow nodes, stock against ours. See
// tools/labs/checks/cost-at-scale/README.md.
package costatscale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/costlab"
)

const (
	base    = "v1.9.11"
	ns      = "default"
	manager = "kube-controller-manager"
	hollow  = "hollow-node"
	// qps is how many requests each controller may make in a second, instead of 20: with
	// those a rollout of 3,000 pods takes 20 minutes.
	qps = 100
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:      "cost-at-scale",
		Folder:    "checks/cost-at-scale",
		OnRequest: true,
		Summary:   "requests, CPU, memory and time of a controller manager that rolls out 50 Deployments with 3,000 pods on 100 hollow nodes, stock compared with Holdfast",
		Steps:     steps,
		Oracle:    oracle,
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-scheduler"),
			labkit.StockBinary(base, hollow),
			labkit.StockBinary(base, manager),
			labkit.BinaryUnderTest(base, manager),
		},
		Variants: []labkit.Variant{labkit.Ours},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 20*time.Minute, 3*time.Hour)
		},
	}}
}

// size is what a profile makes.
type size struct {
	nodes, deployments, replicas, pairs int
	// starts is how often a turn starts its controller manager, to measure that; the last one stays.
	starts int
	// bound is that of one rollout.
	bound time.Duration
}

func sizeOf(p labkit.Profile) size {
	return labkit.Pick(p,
		size{nodes: 5, deployments: 5, replicas: 20, pairs: 3, starts: 3, bound: 3 * time.Minute},
		size{nodes: 100, deployments: 50, replicas: 60, pairs: 6, starts: 9, bound: 25 * time.Minute})
}

func (s size) pods() int { return s.deployments * s.replicas }

type lab struct {
	e *labkit.Env
	c *node.Cluster
	size
	hollow []*process.Proc
	// image is how many changes of the image there were.
	image int
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e, size: sizeOf(e.Profile)}
	s := []labkit.Step{
		{Text: "start the control plane v1.9.11, all stock", Do: l.start},
		{Text: fmt.Sprintf("start %d hollow nodes", l.nodes), Do: l.startHollow},
		{Text: fmt.Sprintf("create %d Deployments of %d pods, each with a Service, and wait until all pods are ready", l.deployments, l.replicas), Do: l.create},
	}
	for i, who := range costlab.Turns(e.Rand, l.pairs) {
		s = append(s, labkit.Step{
			Text: fmt.Sprintf("pair %d: start the controller manager (%s), wait until it sends almost no requests, change the image of all Deployments, and measure until all are rolled out", i/2+1, who),
			Do:   func(ctx context.Context) error { return l.turn(ctx, i/2, who) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error {
		return errors.Join(l.c.Alive(ctx), process.AllAlive(l.hollow...))
	}))
}

func (l *lab) start(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, manager), ExtraArgs: []string{fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", qps)}},
		Scheduler:         &kube.SchedulerConfig{Program: l.e.Stock(base, "kube-scheduler")},
	})
	return err
}

func (l *lab) create(ctx context.Context) error {
	for i := range l.deployments {
		d := deployment(deploymentName(i), int32(l.replicas), image(l.image))
		if err := l.c.Client.Make(ctx, ns, d, kube.Service(d.Name, d.Name, 8080)); err != nil {
			return err
		}
	}
	if _, err := l.waitRolledOut(ctx); err != nil {
		return err
	}
	_, err := l.waitSettled(ctx)
	return err
}

func (l *lab) program(who string) kube.Program {
	if who == costlab.Ours {
		return l.e.UnderTest(base, manager)
	}
	return l.e.Stock(base, manager)
}

// turn starts a build's controller manager and measures a rollout of all Deployments.
func (l *lab) turn(ctx context.Context, pair int, who string) error {
	m := l.c.ControllerManager
	if err := costlab.DeleteEvents(ctx, l.c.Client, ns); err != nil {
		return err
	}
	started, err := costlab.SwapManager(ctx, l.e, l.c, l.program(who), l.starts)
	if err != nil {
		return err
	}
	if err := l.waitQuiet(ctx); err != nil {
		return err
	}
	target := costlab.Target{Proc: m.Proc, ProfilesURL: m.URL + "/debug/pprof"}
	startCPU, err := target.CPU()
	if err != nil {
		return err
	}
	before, err := costlab.ReadRequests(ctx, l.c.APIServer, manager)
	if err != nil {
		return err
	}
	meter, err := costlab.StartMeter(ctx, target)
	if err != nil {
		return err
	}
	begin := time.Now()
	rolledOut, settled, err := l.rollOut(ctx)
	took, stopped := meter.Stop()
	if err := errors.Join(err, stopped); err != nil {
		return err
	}
	after, err := costlab.ReadRequests(ctx, l.c.APIServer, manager)
	if err != nil {
		return err
	}
	r := costlab.Reading{Component: manager, Who: who, Pair: pair, Took: took[0], Asked: after.Since(before)}
	r.Took[costlab.Start], r.Took[costlab.StartCPU] = started, startCPU
	r.Took[costlab.Rollout], r.Took[costlab.Settled] = rolledOut.Sub(begin).Seconds(), settled.Sub(begin).Seconds()
	r.Took[costlab.Requests] = r.Asked.Work()
	if err := target.Inside(ctx, r.Took); err != nil {
		return err
	}
	l.e.Step("%s", r)
	if err := l.nodesWereReady(ctx); err != nil {
		return err
	}
	l.e.Record(r)
	return nil
}

// rollOut changes the image of all Deployments.
func (l *lab) rollOut(ctx context.Context) (rolledOut, settled time.Time, err error) {
	l.image++
	for i := range l.deployments {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, container, image(l.image))
		if _, err := l.c.Client.PatchStrategic(ctx, kube.Deployments, ns, deploymentName(i), patch); err != nil {
			return rolledOut, settled, err
		}
	}
	if rolledOut, err = l.waitRolledOut(ctx); err != nil {
		return rolledOut, settled, err
	}
	l.e.Step("all Deployments are rolled out")
	settled, err = l.waitSettled(ctx)
	return rolledOut, settled, err
}

// waitQuiet waits until the controller manager makes nearly no requests but those of leader
// election: it has seen all objects then.
func (l *lab) waitQuiet(ctx context.Context) error {
	const (
		window = 10 * time.Second
		few    = 20
	)
	begin, last := time.Now(), -1.0
	for time.Since(begin) < 5*time.Minute {
		asked, err := costlab.ReadRequests(ctx, l.c.APIServer, manager)
		if err != nil {
			return err
		}
		now := asked.Work()
		if last >= 0 && now-last < few && time.Since(begin) > 2*window {
			return nil
		}
		last = now
		if err := wait.Pause(ctx, window); err != nil {
			return err
		}
	}
	return fmt.Errorf("after 5 minutes the controller manager still sends more than %d requests in %v", few, window)
}

// nodesWereReady is an error if a node has ever been taken for lost: then the controller
// manager has done other work than a rollout.
func (l *lab) nodesWereReady(ctx context.Context) error {
	events, err := l.c.Client.List(ctx, kube.Events, ns, "")
	if err != nil {
		return err
	}
	for i := range events {
		if kube.String(&events[i], "reason") == "NodeNotReady" {
			return fmt.Errorf("the controller manager considered node %s lost: the computer is too slow for %d hollow nodes", kube.String(&events[i], "involvedObject", "name"), l.nodes)
		}
	}
	return nil
}
