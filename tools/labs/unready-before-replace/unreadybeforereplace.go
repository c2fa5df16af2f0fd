// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unreadybeforereplace is the lab unready-before-replace: the images of 20 pods
// on two nodes change, and containers are killed that the API has as ready. See
// tools/labs/unready-before-replace/README.md.
package unreadybeforereplace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

const (
	ns   = webset.NS
	pods = webset.Pods

	drainAnnotation  = "holdfast/drain-seconds"
	optOutAnnotation = "holdfast/replace-at-once"
	// drain is the value of the round with a drain, long that of the cases, the longest that
	// is allowed: no case waits for its end.
	drain, long = "5", "300"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	later := labkit.OnBase(of, "v1.12.10")
	later.Test = []labkit.Variant{labkit.Stock, labkit.Ours} // the incident was reported at 1.12
	return []labkit.Lab{of("v1.9.11"), later}
}

// of is the lab of a base.
func of(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "unready-before-replace",
		Summary: "in-place image updates kill containers that the API still shows as ready",
		Test:    []labkit.Variant{labkit.Stock, labkit.Ours},
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, base) },
		Oracle:  oracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 10*time.Minute, 50*time.Minute)
		},
		Needs: labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubelet")),
	}
}

// rounds is how often all images are changed, and how often the cases are repeated.
func rounds(p labkit.Profile) int { return labkit.Pick(p, 1, 10) }

type lab struct {
	e    *labkit.Env
	base string
	c    *node.Cluster
	web  *webset.Running
}

func steps(e *labkit.Env, base string) []labkit.Step {
	l := &lab{e: e, base: base, web: &webset.Running{Action: "kill"}}
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-controller-manager, and two nodes with the kubelet under test; record docker's events", Do: l.startCluster},
		{Text: fmt.Sprintf("create a Service and %d pods that take 0 to 8 s to end, half of them without a readiness probe", pods), Do: l.start},
	}
	for i := range rounds(e.Profile) {
		all = append(all, labkit.Step{
			Text: fmt.Sprintf("round %d: wait until the kubelets have not used up their request limit, change all images at once, and send requests to the addresses in Endpoints; a container that is killed while it is ready ends the run", i+1),
			Do:   func(ctx context.Context) error { return l.replaceAll(ctx, "") },
		})
	}
	if e.Variant != labkit.Stock {
		all = append(all, labkit.Step{Text: "repeat it with " + drainAnnotation + " " + drain, Do: func(ctx context.Context) error { return l.replaceAll(ctx, drain) }})
		for i := range rounds(e.Profile) {
			all = append(all,
				labkit.Step{Text: fmt.Sprintf("cases, round %d: during the wait restore the old image, set another image, set an image that does not exist, delete the pod, let the liveness probe fail; also change a container that is opted out", i+1),
					Do: func(ctx context.Context) error { return l.during(ctx, i) }},
				labkit.Step{Text: fmt.Sprintf("cases, round %d: kill -9 of the kubelet after the pod became not ready and before the kill of its container", i+1),
					Do: func(ctx context.Context) error { return l.restarted(ctx, i) }})
		}
		all = append(all,
			labkit.Step{Text: "the stock kubelet takes over while a pod waits", Do: l.toStock},
			labkit.Step{Text: "change a static pod, which has a uid of its own, while the API server is stopped", Do: l.away})
		if e.Profile == labkit.Long {
			all = append(all, l.followSteps()...)
		}
	}
	return append(all, labkit.Step{Text: "check that etcd and kube-apiserver run, and that no stream of events was lost", Always: true, Do: l.intact})
}

// intact: the kubelets are killed by the lab.
func (l *lab) intact(context.Context) error {
	return errors.Join(l.web.Lost(), process.AllAlive(l.c.APIServer.Proc, l.c.Etcd.Proc))
}

func (l *lab) startCluster(ctx context.Context) error {
	manager := l.e.Stock(l.base, "kube-controller-manager")
	cfg := node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(l.base, "kube-apiserver")},
		// It must live through a stopped API server.
		ControllerManager: &kube.ControllerManagerConfig{Program: manager,
			ExtraArgs: []string{"--leader-elect=false", "--controllers=*,-" + manager.NodeController(), "--kube-api-qps=100", "--kube-api-burst=200"}},
	}
	for _, name := range []string{"node1", "node2"} {
		cfg.Nodes = append(cfg.Nodes, node.Config{Name: name, Kubelet: l.e.UnderTest(l.base, "kubelet")})
	}
	var err error
	if l.c, err = l.e.StartCluster(ctx, cfg); err != nil {
		return err
	}
	for _, n := range l.c.Nodes {
		if err := l.web.Watch(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) start(ctx context.Context) error { return l.web.Create(ctx, l.c.Client, l.e.Rand) }

// replaceAll changes the images of all pods, with drain-seconds if that is not "", and
// records what became of it.
func (l *lab) replaceAll(ctx context.Context, drain string) error {
	if drain != "" {
		for i := range pods {
			if err := l.annotate(ctx, webset.Name(i), drainAnnotation, drain); err != nil {
				return err
			}
		}
	}
	old, err := l.web.Quiet(ctx)
	if err != nil {
		return err
	}
	requests := load.Start(ctx, load.Config{Interval: 25 * time.Millisecond, Targets: func() []string {
		return kubeletlab.RecentAddresses(l.web.Endpoints, ns, webset.Service, time.Second, func(string) bool { return true })
	}})
	begin := time.Now()
	if err := l.web.Change(ctx, func(int) time.Duration { return 0 }); err != nil {
		return err
	}
	l.e.Logf("all images changed after %v", time.Since(begin))
	if err := l.web.WaitReplaced(ctx, old); err != nil {
		return err
	}
	if err := l.web.WaitReady(ctx, pods, 3*time.Minute); err != nil {
		return err
	}
	r := round{Drain: drain, Began: begin, Requests: requests.Stop()}
	for i := range pods {
		name := webset.Name(i)
		r.Pods = append(r.Pods, replaced{Name: name, Was: old[name], Killed: l.web.At(old[name]), Events: l.since(name, begin)})
	}
	for _, ev := range l.web.Versions() {
		if !ev.Time.Before(begin) {
			r.Endpoints = append(r.Endpoints, version{ev.Time, kubeletlab.ReadyPods(ev.Object)})
		}
	}
	l.e.Record(r)
	if k := r.checkK(); len(k.broken) > 0 {
		return labkit.Enough
	}
	return nil
}

// since is what a watcher saw of a pod from begin on.
func (l *lab) since(name string, begin time.Time) []podEvent {
	var out []podEvent
	for _, ev := range l.web.Pods.Of(ns, name) {
		if !ev.Time.Before(begin) && ev.Type != "DELETED" {
			out = append(out, podEvent{ev.Time, kubeletlab.PodReady(ev.Object), webset.ContainerID(ev.Object)})
		}
	}
	return out
}

func (l *lab) annotate(ctx context.Context, name, key, value string) error {
	_, err := l.c.Client.PatchMerge(ctx, kube.Pods, ns, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
	return err
}
