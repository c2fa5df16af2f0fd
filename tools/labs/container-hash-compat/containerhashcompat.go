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

const base = "v1.9.11"

func init() {
	labkit.Register(labkit.Lab{
		Name:    "container-hash-compat",
		Summary: "a kubelet upgrade recreates every container of the node",
		Plan: func(p labkit.Profile) []string {
			plan := []string{
				"start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0",
				fmt.Sprintf("create %d pods of different kinds, a DaemonSet and a static pod, all started by v1.7.0", len(kinds)),
			}
			for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours, labkit.GateOff} {
				var s []string
				for _, st := range chain(v, p) {
					name := st.String()
					if !st.judged() {
						name = "(" + name + ")"
					}
					s = append(s, name)
				}
				plan = append(plan, fmt.Sprintf("%s: swap the kubelet in place: v1.7.0 → %s", v, strings.Join(s, " → ")))
			}
			return append(plan,
				"steps in brackets are what old kubelets do among themselves and are not judged",
				"while the kubelet is down, in every step: change the image of one pod, which must be replaced, once",
				"a step is over when the new kubelet has said of every pod that it compared it (see kubeletlab.WaitCompared)",
				"oracle per step: container IDs and start times in docker, restart counts in the API, requests to host ports; static pods apart")
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary("v1.7.0", "kubelet"),
			labkit.StockBinary("v1.8.15", "kubelet"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Timeout: func(p labkit.Profile) time.Duration {
			if p == labkit.Long {
				return 40 * time.Minute
			}
			return 15 * time.Minute
		},
		Run: run,
	})
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

// chain is the kubelets that follow v1.7.0. An old kubelet that is not judged
// recreates what it must, so that the next step starts from its containers.
func chain(v labkit.Variant, p labkit.Profile) []step {
	test := step{base: base, variant: labkit.UnderTest}
	old := func(b string, back bool) step { return step{base: b, variant: labkit.Stock, back: back} }
	switch {
	case v == labkit.GateOff:
		return []step{test}
	case v == labkit.Stock && p == labkit.Short:
		return []step{test}
	case v == labkit.Stock:
		return []step{test, old("v1.8.15", false), test}
	case p == labkit.Short:
		return []step{test, old("v1.7.0", true), old("v1.8.15", false), test, old("v1.8.15", true), old(base, false), test, old(base, true)}
	}
	return []step{test, old("v1.7.0", true), test, old("v1.8.15", false), test, old("v1.8.15", true), test, old(base, false), test, old(base, true)}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	// extra pods were created by ours and must survive going back.
	extra []string
	// changes is the restart count that the pod changed must have, one for each step.
	changes int64
}

// outcome of one step.
type outcome struct {
	step              string
	recreated, kept   int
	unexpected, other []string
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		Nodes:             []node.Config{{Name: "node1", Kubelet: e.Stock("v1.7.0", "kubelet"), KubeletArgs: []string{kubeletlab.LogComparisons}}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c, node: c.Nodes[0]}
	if err := l.create(ctx); err != nil {
		return labkit.Result{}, err
	}
	from := "v1.7.0"
	var bad, good int
	var firstBad string
	var problems []string
	steps := chain(e.Variant, e.Profile)
	for i, s := range steps {
		name := from + " → " + l.name(s)
		o, err := l.swap(ctx, i, s, name)
		if err != nil {
			return labkit.Result{}, err
		}
		if err := l.more(ctx, s, i+1 < len(steps) && steps[i+1].back); err != nil {
			return labkit.Result{}, err
		}
		from = l.name(s)
		verdict := "not judged"
		if s.judged() {
			verdict = "judged"
			bad += len(o.unexpected)
			good += o.kept
			if firstBad == "" && len(o.unexpected) > 0 {
				firstBad = fmt.Sprintf("%s recreated %d of %d, first %s", name, len(o.unexpected), o.recreated+o.kept, o.unexpected[0])
			}
			problems = append(problems, o.other...)
		}
		e.Fact("%-28s %3d containers recreated, %3d kept (%s)", name+":", o.recreated, o.kept, verdict)
		for _, p := range o.other {
			e.Fact("%s %s", name+":", p)
		}
	}
	if len(problems) > 0 && e.Variant == labkit.Ours {
		return labkit.ReproducedBecause("%s", strings.Join(problems, "; ")), nil
	}
	if bad > 0 {
		return labkit.ReproducedBecause("%s", firstBad), nil
	}
	return labkit.AbsentBecause("no container was recreated but by its own spec; %d looks at a container, every one kept", good), nil
}

func (l *lab) name(s step) string {
	if s.variant != labkit.UnderTest {
		return s.base
	}
	return string(l.e.Variant)
}

func (l *lab) create(ctx context.Context) error {
	l.e.Step("create %d pods, a DaemonSet and a static pod under kubelet v1.7.0", len(kinds))
	if err := os.WriteFile(filepath.Join(l.node.Dir, "manifests", "static.yaml"), []byte(staticPod()), 0o644); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, objects+"---"+daemonSet()); err != nil {
		return err
	}
	for _, k := range kinds {
		if _, err := l.c.Client.CreateYAML(ctx, ns, k.yaml(l.node.Name)); err != nil {
			return err
		}
	}
	return l.ready(ctx, 4*time.Minute)
}

// ready waits until every pod is ready (those without a probe run, then).
func (l *lab) ready(ctx context.Context, bound time.Duration) error {
	want := len(kinds) + len(l.extra) + 2
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
	_, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "", bound, "name the containers that run", func(pods []kube.Object) (bool, error) {
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

func isStatic(key string) bool { return strings.HasPrefix(key, ns+"/static-") }

// swap ends the kubelet, starts the next, and compares.
func (l *lab) swap(ctx context.Context, i int, s step, name string) (outcome, error) {
	o := outcome{step: name}
	before, err := l.agreed(ctx, time.Minute)
	if err != nil {
		return o, err
	}
	counts, err := l.restartCounts(ctx)
	if err != nil {
		return o, err
	}
	l.e.Step("%s: %d containers run", name, len(before))
	if err := l.node.StopKubelet(); err != nil {
		return o, err
	}
	l.changes++
	image := node.WebImage(map[bool]string{true: "v2", false: "v1"}[l.changes%2 == 1])
	if _, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, changed,
		fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":%q}]}}`, image)); err != nil {
		return o, err
	}
	program := l.e.Stock(s.base, "kubelet")
	if s.variant == labkit.UnderTest {
		program = l.e.UnderTest(base, "kubelet")
	}
	if err := l.node.StartKubelet(ctx, program); err != nil {
		return o, err
	}
	pods := len(kinds) + len(l.extra) + 2
	if err := kubeletlab.WaitSynced(ctx, l.node, pods, 2*time.Minute); err != nil {
		return o, err
	}
	if err := kubeletlab.WaitCompared(ctx, l.node, before.Pods(), 5*time.Minute); err != nil {
		return o, err
	}
	if err := l.ready(ctx, 5*time.Minute); err != nil {
		return o, err
	}
	// What it decided to stop is stopped by now or has 2 s.
	if _, err := kubeletlab.WaitStable(ctx, l.node, 4*time.Second, 5*time.Minute); err != nil {
		return o, err
	}
	after, err := l.agreed(ctx, 2*time.Minute)
	if err != nil {
		return o, err
	}
	// must is what this step has to recreate. may is what only 1.7 can recreate
	// and only 1.7 can have started: it ignores a field of the spec.
	must, may := map[string]bool{}, map[string]bool{}
	for _, k := range kinds {
		may[ns+"/"+k.name+"/main"] = k.mustRecreate
		if k.mustRecreate && i == 0 {
			must[ns+"/"+k.name+"/main"] = true
		}
	}
	must[ns+"/"+changed+"/main"] = true
	d := kubeletlab.Compare(before, after, func(key string, c kubeletlab.Container) bool { return !isStatic(key) && !c.Sandbox })
	boxes := kubeletlab.Compare(before, after, func(key string, c kubeletlab.Container) bool { return !isStatic(key) && c.Sandbox })
	static := kubeletlab.Compare(before, after, func(key string, c kubeletlab.Container) bool { return isStatic(key) })
	problem := func(format string, a ...any) { o.other = append(o.other, fmt.Sprintf(format, a...)) }
	for _, key := range d.Recreated {
		if must[key] || may[key] {
			delete(must, key)
			l.e.Logf("%s: %s recreated, as its spec demands", name, key)
			continue
		}
		o.recreated++
		o.unexpected = append(o.unexpected, key)
	}
	o.kept = len(d.Kept)
	if !s.judged() && must[ns+"/"+changed+"/main"] {
		return o, fmt.Errorf("%s: the pod whose image changed was not replaced: nothing says that containers were compared", name)
	}
	for key := range must {
		problem("%s was not recreated though its spec says something else than what runs", key)
	}
	for _, key := range d.Gone {
		problem("%s does not run any more", key)
	}
	if n := len(boxes.Recreated) + len(boxes.Gone); n > 0 {
		problem("%d of %d sandboxes recreated", n, n+len(boxes.Kept))
	}
	if !s.judged() {
		o.other = nil
	}
	l.e.Fact("%s: static pod: %d of %d containers recreated (its UID is another in each release)", name, len(static.Recreated)+len(static.Gone), len(static.Recreated)+len(static.Gone)+len(static.Kept))
	if s.judged() && len(o.unexpected) == 0 {
		now, err := l.restartCounts(ctx)
		if err != nil {
			return o, err
		}
		for _, key := range d.Kept {
			k := strings.TrimPrefix(key, ns+"/")
			if now[k] != counts[k] {
				problem("restart count of %s went from %d to %d though its container is the same", k, counts[k], now[k])
			}
		}
		if got := now[changed+"/main"]; got != l.changes {
			problem("the pod whose image changes in each step was restarted %d times, want %d", got, l.changes)
		}
	}
	for _, k := range kinds {
		if k.hostPort == 0 {
			continue
		}
		if _, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", l.node.IP, k.hostPort)); err != nil {
			problem("host port %d of %s: %v", k.hostPort, k.name, err)
		}
	}
	return o, nil
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
			k.name, k.mustRecreate = "by-ours-"+k.name, false
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
