// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package containerhashcompat is the lab container-hash-compat: kubelets of
// several releases take over each other's containers. See
// tools/labs/container-hash-compat/README.md.
package containerhashcompat

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// setup is what the lab does on one base.
type setup struct {
	// base is that of the kubelet under test and of the control plane. old is the stock kubelet that
	// is there first, and between another one, which needs the long profile; "": none.
	base, old, between string
	// forecasts: kubectl-holdfast knows what the swaps do.
	forecasts bool
	// onlySecurity: stock recreates only containers with a securityContext.
	onlySecurity bool
	// more are kinds of pods besides the common ones, apiArgs and managerArgs what they need.
	more                 []kind
	apiArgs, managerArgs []string
}

var setups = map[string]setup{
	"v1.9.11": {base: "v1.9.11", old: "v1.7.0", between: "v1.8.15", forecasts: true},
	"v1.12.10": {base: "v1.12.10", old: "v1.11.10", onlySecurity: true, more: since110,
		// The API server drops fields whose gate is off. No scheduler runs.
		apiArgs:     []string{"--feature-gates=ProcMountType=true,RunAsGroup=true"},
		managerArgs: []string{"--feature-gates=ScheduleDaemonSetPods=false"}},
}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{of("v1.9.11"), labkit.OnBase(of, "v1.12.10")}
}

// of is the lab of a base.
func of(base string) labkit.Lab {
	s := setups[base]
	l := labkit.Lab{
		Name:    "container-hash-compat",
		Summary: "a kubelet upgrade recreates every container of the node",
		Test:    []labkit.Variant{labkit.Stock, labkit.Ours},
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, s) },
		Oracle:  s.oracle(),
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(s.old, "kubelet"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 15*time.Minute, 40*time.Minute)
		},
	}
	if s.between != "" {
		l.LongNeeds = []labkit.Binary{labkit.StockBinary(s.between, "kubelet")}
	}
	if s.onlySecurity {
		l.Summary = "a kubelet upgrade recreates every container with a securityContext"
	}
	return l
}

// step is a swap of the kubelet.
type step struct {
	base    string
	variant labkit.Variant // under-test, or stock for an old kubelet's own business
	back    bool           // an old kubelet takes over from ours and must keep everything
}

func (s step) judged() bool { return s.variant == labkit.UnderTest || s.back }

func (s step) String() string {
	if s.variant == labkit.UnderTest {
		return "under test"
	}
	return s.base
}

// chain is the kubelets that follow s.old. An old kubelet that is not judged
// recreates what it must, so that the next step starts from its containers.
func (s setup) chain(v labkit.Variant, p labkit.Profile) []step {
	test := step{base: s.base, variant: labkit.UnderTest}
	old := func(b string, back bool) step { return step{base: b, variant: labkit.Stock, back: back} }
	switch {
	case v == labkit.GateOff, v == labkit.Stock && (p == labkit.Short || s.between == ""):
		return []step{test}
	case v == labkit.Stock:
		return []step{test, old(s.between, false), test}
	// The kubelet between needs the long profile: every swap among old kubelets recreates all pods.
	// From stock 1.9.11 to ours and back goes the lab predecessor.
	case p == labkit.Short:
		return []step{test, old(s.old, true)}
	}
	all := []step{test, old(s.old, true)}
	if s.between != "" {
		all = append(all, test, old(s.between, false), test, old(s.between, true))
	}
	return append(all, test, old(s.base, false), test, old(s.base, true))
}

type lab struct {
	setup
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	// kinds are the pods that are there from the beginning.
	kinds []kind
	// extra pods were created by ours and must survive going back.
	extra []string
	// swaps are made by kubectl-holdfast, if it makes any.
	swaps *kubeletlab.Swaps
	// changes is the restart count that the pod changed must have, one for each step.
	changes int64
}

func steps(e *labkit.Env, s setup) []labkit.Step {
	l := &lab{setup: s, e: e, kinds: s.kinds(e.Variant, e.Profile)}
	steps := []labkit.Step{
		{Text: fmt.Sprintf("start etcd, apiserver and controller manager %s, and a node with the stock kubelet %s", s.base, s.old), Do: l.start},
		{Text: fmt.Sprintf("create %d pods of different kinds, a DaemonSet and a static pod, all started by %s", len(l.kinds), s.old), Do: l.create},
	}
	from, all := s.old, s.chain(e.Variant, e.Profile)
	for i, st := range all {
		name := from + " → " + l.name(st)
		text := "swap the kubelet in place, " + name
		if !st.judged() {
			text += " (a swap between old kubelets, not judged)"
		}
		steps = append(steps, labkit.Step{Text: text, Do: func(ctx context.Context) error {
			if err := l.swap(ctx, i, st, name); err != nil {
				return err
			}
			return l.more(ctx, st, i+1 < len(all) && all[i+1].back)
		}})
		from = l.name(st)
	}
	return append(steps, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) error {
	old := l.e.Stock(l.old, "kubelet")
	n := node.Config{Name: "node1", Kubelet: old, KubeletArgs: []string{kubeletlab.LogComparisons}}
	if l.byProgram(l.e.Variant, l.e.Profile) {
		n.Kubelet, n.Unit = kube.Program{}, kubeletlab.UnitFlags
	}
	c, err := l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.Stock(l.base, "kube-apiserver"), ExtraArgs: l.apiArgs},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(l.base, "kube-controller-manager"), ExtraArgs: l.managerArgs},
		Nodes:             []node.Config{n},
	})
	if err != nil {
		return err
	}
	l.c, l.node = c, c.Nodes[0]
	if !l.byProgram(l.e.Variant, l.e.Profile) {
		return nil
	}
	if l.swaps, err = kubeletlab.NewSwaps(ctx, l.e, l.node, old); err != nil {
		return err
	}
	return c.WaitNodeReady(ctx, l.node.Name, time.Minute)
}

func (l *lab) name(s step) string {
	if s.variant != labkit.UnderTest {
		return s.base
	}
	return string(l.e.Variant)
}

func (l *lab) create(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(l.node.Dir, "manifests", "static.yaml"), []byte(staticPod()), 0o644); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, objects+"---"+daemonSet()); err != nil {
		return err
	}
	for _, k := range l.kinds {
		if _, err := l.c.Client.CreateYAML(ctx, ns, k.yaml(l.node.Name)); err != nil {
			return err
		}
	}
	return l.ready(ctx, 4*time.Minute)
}

// ready waits until every pod is ready (those without a probe run, then).
func (l *lab) ready(ctx context.Context, bound time.Duration) error {
	want := len(l.kinds) + len(l.extra) + 2
	_, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "", bound, "all ready", func(pods []kube.Object) (bool, error) {
		n := 0
		for i := range pods {
			if kubeletlab.PodReady(&pods[i]) {
				n++
			} else {
				l.e.Logf("%s is not ready: %v", pods[i].GetName(), pods[i].Object["status"])
			}
		}
		if n != want || len(pods) != want {
			return false, fmt.Errorf("%d of %d pods are ready, want %d", n, len(pods), want)
		}
		return true, nil
	})
	return err
}

// agreed waits until all pods are ready and the API names just the containers
// that run, and returns these.
func (l *lab) agreed(ctx context.Context, bound time.Duration) (kubeletlab.Snapshot, error) {
	if err := l.ready(ctx, bound); err != nil {
		return nil, err
	}
	var s kubeletlab.Snapshot
	_, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "", bound, "report the running containers", func(pods []kube.Object) (bool, error) {
		var err error
		if s, err = kubeletlab.Take(ctx, l.node); err != nil {
			return false, err
		}
		for i := range pods {
			for name, id := range kube.ContainerIDs(&pods[i]) {
				if got := s[ns+"/"+pods[i].GetName()+"/"+name].ID; got != id && !strings.HasPrefix(pods[i].GetName(), "static-") {
					return false, fmt.Errorf("container %s of pod %s: the API has %.12s, docker %.12s", name, pods[i].GetName(), id, got)
				}
			}
		}
		return true, nil
	})
	return s, err
}

// restartCounts of all containers by "pod/container", static pods left out.
func (l *lab) restartCounts(ctx context.Context) (map[string]int64, error) {
	pods, err := l.c.Client.List(ctx, kube.Pods, ns, "")
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	for i := range pods {
		for _, c := range kube.Slice(&pods[i], "status", "containerStatuses") {
			m := c.(map[string]any)
			n, _ := m["restartCount"].(int64)
			counts[pods[i].GetName()+"/"+m["name"].(string)] = n
		}
	}
	return counts, nil
}

// swap ends the kubelet, starts the next, and records what became of everything.
func (l *lab) swap(ctx context.Context, i int, s step, name string) error {
	o := swapped{Step: i, Name: name, Judged: s.judged(), HostPorts: map[string]string{}}
	before, err := l.agreed(ctx, time.Minute)
	if err != nil {
		return err
	}
	counts, err := l.restartCounts(ctx)
	if err != nil {
		return err
	}
	program := l.e.Stock(s.base, "kubelet")
	if s.variant == labkit.UnderTest {
		program = l.e.UnderTest(l.base, "kubelet")
	}
	if l.forecasts {
		if o.Forecast, err = kubeletlab.Forecast(ctx, l.e, l.c.APIServer.URL, l.node.Name, program); err != nil {
			return err
		}
		if o.False, err = kubeletlab.FalseForecast(ctx, l.e, l.c.APIServer.URL, l.node.Name, program); err != nil {
			return err
		}
	}
	l.e.Step("%s: %d containers run", name, len(before))
	if o.By, err = l.replace(ctx, program); err != nil {
		return err
	}
	pods := len(l.kinds) + len(l.extra) + 2
	if err := kubeletlab.WaitSynced(ctx, l.node, pods, 2*time.Minute); err != nil {
		return err
	}
	if err := kubeletlab.WaitCompared(ctx, l.node, before.Pods(), 5*time.Minute); err != nil {
		return err
	}
	if err := l.ready(ctx, 5*time.Minute); err != nil {
		return err
	}
	// What it decided to stop is stopped by now or has 2 s.
	if _, err := kubeletlab.WaitStable(ctx, l.node, 4*time.Second, 5*time.Minute); err != nil {
		return err
	}
	after, err := l.agreed(ctx, 2*time.Minute)
	if err != nil {
		return err
	}
	o.Before, o.After, o.CountsBefore, o.Changes = before, after, counts, l.changes
	if o.CountsAfter, err = l.restartCounts(ctx); err != nil {
		return err
	}
	for _, k := range l.kinds {
		if k.hostPort == 0 {
			continue
		}
		o.HostPorts[k.name] = ""
		if _, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", l.node.IP, k.hostPort)); err != nil {
			o.HostPorts[k.name] = err.Error()
		}
	}
	l.e.Record(o)
	return nil
}

// byOurs are the kinds that are created once more by the kubelet under test.
var byOurs = map[string]bool{"plain": true, "run-as-user": true, "capabilities-drop": true, "sub-path": true}

// more creates pods under ours if the kubelet that was there before takes over
// again next, and removes them when it has: they must survive it, but not what
// comes then.
func (l *lab) more(ctx context.Context, s step, backNext bool) error {
	if l.e.Variant != labkit.Ours {
		return nil
	}
	if backNext {
		for _, k := range kinds {
			if !byOurs[k.name] {
				continue
			}
			k.name, k.since = "by-ours-"+k.name, 0
			if _, err := l.c.Client.CreateYAML(ctx, ns, k.yaml(l.node.Name)); err != nil {
				return err
			}
			l.extra = append(l.extra, k.name)
		}
		return l.ready(ctx, 2*time.Minute)
	}
	if s.back {
		for _, name := range l.extra {
			if err := l.c.Client.Delete(ctx, kube.Pods, ns, name); err != nil {
				return err
			}
		}
		l.extra = nil
		if err := wait.Until(ctx, "the containers of the deleted pods are gone", time.Minute, func(ctx context.Context) (bool, error) {
			snap, err := kubeletlab.Take(ctx, l.node)
			for _, c := range snap {
				if strings.HasPrefix(c.Pod, "by-ours-") {
					return false, fmt.Errorf("a container of %s runs", c.Pod)
				}
			}
			return err == nil, err
		}); err != nil {
			return err
		}
		return l.ready(ctx, time.Minute)
	}
	return nil
}
