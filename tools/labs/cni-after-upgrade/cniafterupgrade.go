// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cniafterupgrade is the lab cni-after-upgrade: what a kubelet leaves of pods' networks.
// See tools/labs/cni-after-upgrade/README.md.
package cniafterupgrade

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
	// each is how many pods of each kind there are.
	each     = 2
	patience = 2 * time.Minute
	// settle is for what should be taken down: a kubelet collects dead sandboxes once a minute.
	settle = 100 * time.Second
)

// Kinds of pods, by what happens to them in a phase; a pod is called KIND-PHASE-N.
const (
	stays         = "stays"          // nothing
	deleted       = "deleted"        // deleted while the kubelet is down
	killed        = "killed"         // its container is killed
	sandboxKilled = "sandbox-killed" // its sandbox is killed while the kubelet is down
	lost          = "lost"           // docker has lost its containers while the kubelet is down
	lostDeleted   = "lost-deleted"   // as lost, and deleted
	lostFailed    = "lost-failed"    // as lost-deleted, and the first DEL fails
	addFails      = "add-fails"      // its first ADD fails
	removed       = "removed"        // its sandbox is stopped and removed while ADD runs
)

// Phases, in their order.
const (
	swap   = "swap"
	adds   = "adds"
	reboot = "reboot"
	ended  = "end"
)

var phases = []string{swap, adds, reboot, ended}

// kinds are the pods that a phase must have had.
var kinds = map[string][]string{
	swap:   {stays, deleted, killed, sandboxKilled, lost, lostDeleted},
	adds:   {addFails, removed},
	reboot: {stays, deleted, lostDeleted, lostFailed},
	ended:  {stays},
}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:     "cni-after-upgrade",
		Summary:  "addresses and veths of deleted pods remain after a swap from 1.7.0, failed ADDs and a reboot",
		Test:     []labkit.Variant{labkit.Ours},
		Packages: []string{node.CNIPackage},
		Steps:    steps,
		Oracle:   oracle,
		Timeout:  func(labkit.Profile) time.Duration { return 20 * time.Minute },
		Needs:    labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet")),
	}}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	// dir has the plugins, their configuration and what they write.
	dir string
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	kill := e.Rand.IntN(2) == 0
	how := map[bool]string{true: "kill -9", false: "SIGTERM"}[kill]
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0 and CNI: bridge, host-local, portmap, and a plugin that records each call", Do: l.start},
		{Text: fmt.Sprintf("%s: %s of 1.7.0; while no kubelet runs, pods are deleted, sandboxes killed, containers removed from docker; start the kubelet under test", swap, how),
			Do: func(ctx context.Context) error { return l.swap(ctx, kill) }},
		{Text: "give a container the name of a pod's sandbox; delete the pod", Do: l.named},
		{Text: adds + ": ADD fails for pods after the other plugins have succeeded; a pod is deleted while its ADD runs, and the ADD ends after docker has removed the sandbox", Do: l.adds},
		{Text: reboot + ": power off, start docker; pods are deleted and containers removed from docker; start the kubelet; some DELs fail once", Do: l.reboot},
		{Text: ended + ": delete all pods", Do: l.end},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base)
	if err != nil {
		return err
	}
	l.c, l.dir = c, l.e.Path("cni")
	if l.node, err = l.e.StartNode(ctx, c.APIServer, node.Config{Name: "node1", CNI: true}); err != nil {
		return err
	}
	c.Nodes = []*node.Node{l.node}
	if err := l.plugins(); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.Stock(old, "kubelet")); err != nil {
		return err
	}
	if err := c.WaitNodeReady(ctx, l.node.Name, patience); err != nil {
		return err
	}
	if err := l.make(ctx, swap, kinds[swap]...); err != nil {
		return err
	}
	links, err := l.node.Output(ctx, "ip", "-o", "link", "show", "master", "cni0")
	if err == nil && strings.Count(links, "\n") < each*len(kinds[swap]) {
		err = fmt.Errorf("the bridge has too few links:\n%s", links)
	}
	return err
}

func (l *lab) startKubelet(ctx context.Context, p kube.Program) error {
	return l.node.StartKubelet(ctx, p, "--cni-conf-dir="+l.dir, "--cni-bin-dir="+l.dir)
}

func name(kind, phase string, i int) string { return fmt.Sprintf("%s-%s-%d", kind, phase, i) }

// names are the pods of these kinds of a phase.
func names(phase string, kinds ...string) []string {
	var out []string
	for _, k := range kinds {
		for i := range each {
			out = append(out, name(k, phase, i))
		}
	}
	return out
}

// make makes pods and waits until they run.
func (l *lab) make(ctx context.Context, phase string, kinds ...string) error {
	for _, p := range names(phase, kinds...) {
		if err := l.c.Client.Make(ctx, ns, node.Pod(p, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
	}
	return l.ready(ctx, names(phase, kinds...)...)
}

func (l *lab) ready(ctx context.Context, pods ...string) error {
	for _, p := range pods {
		if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, p, patience, "is ready", func(o *kube.Object) (bool, error) {
			return kubeletlab.PodReady(o), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) delete(ctx context.Context, pods ...string) error {
	for _, p := range pods {
		if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, p); err != nil {
			return err
		}
	}
	return nil
}

// containers are docker's of these pods, also those that do not run.
func (l *lab) containers(ctx context.Context, kind string, pods ...string) ([]node.Container, error) {
	all, err := l.node.Docker.Containers(ctx, true)
	return slices.DeleteFunc(all, func(c node.Container) bool {
		return c.Labels[node.LabelType] != kind || !slices.Contains(pods, c.Labels[node.LabelPod])
	}), err
}

const (
	sandbox   = "podsandbox"
	container = "container"
)

// kill ends the containers of pods, which stay in docker's list.
func (l *lab) kill(ctx context.Context, kind string, pods ...string) error {
	cs, err := l.containers(ctx, kind, pods...)
	if err == nil && len(cs) != len(pods) {
		err = fmt.Errorf("%d of kind %s for %d pods", len(cs), kind, len(pods))
	}
	for _, c := range cs {
		if err == nil {
			err = l.node.Docker.Call(ctx, http.MethodPost, "/containers/"+c.ID+"/kill", "", nil, nil)
		}
	}
	return err
}

// lose removes all containers of pods from docker.
func (l *lab) lose(ctx context.Context, pods ...string) error {
	for _, kind := range []string{container, sandbox} {
		cs, err := l.containers(ctx, kind, pods...)
		if err == nil && len(cs) < len(pods) {
			err = fmt.Errorf("%d of kind %s for %d pods", len(cs), kind, len(pods))
		}
		for _, c := range cs {
			if err == nil {
				err = l.node.Docker.Call(ctx, http.MethodDelete, "/containers/"+c.ID+"?force=1", "", nil, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) swap(ctx context.Context, kill bool) error {
	end := l.node.StopKubelet
	if kill {
		end = l.node.KillKubelet
	}
	if err := end(); err != nil {
		return err
	}
	if err := l.delete(ctx, names(swap, deleted, lostDeleted)...); err != nil {
		return err
	}
	if err := l.kill(ctx, sandbox, names(swap, sandboxKilled)...); err != nil {
		return err
	}
	if err := l.kill(ctx, container, names(swap, killed)...); err != nil {
		return err
	}
	if err := l.lose(ctx, names(swap, lost, lostDeleted)...); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	return l.look(ctx, swap, names(swap, stays, killed, sandboxKilled, lost)...)
}

func (l *lab) file(command, what, pod string) string {
	return filepath.Join(l.dir, strings.Join([]string{command, what, pod}, "-"))
}

// tell has the plugin fail or hold calls for pods.
func (l *lab) tell(command, what string, pods ...string) error {
	for _, p := range pods {
		if err := os.WriteFile(l.file(command, what, p), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) adds(ctx context.Context) error {
	held := names(adds, removed)
	if err := l.tell("ADD", "fail", names(adds, addFails)...); err != nil {
		return err
	}
	if err := l.tell("ADD", "hold", held...); err != nil {
		return err
	}
	if err := l.make(ctx, adds, addFails); err != nil {
		return err
	}
	for _, p := range held {
		if err := l.c.Client.Make(ctx, ns, node.Pod(p, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
	}
	if err := wait.Until(ctx, "ADD runs", patience, func(context.Context) (bool, error) {
		calls, err := l.calls()
		n := 0
		for _, c := range calls {
			if slices.Contains(held, c.Pod) {
				n++
			}
		}
		return n >= len(held), err
	}); err != nil {
		return err
	}
	if err := l.delete(ctx, held...); err != nil {
		return err
	}
	if err := wait.Until(ctx, "the kubelet has removed the sandboxes", patience, func(ctx context.Context) (bool, error) {
		cs, err := l.containers(ctx, sandbox, held...)
		return len(cs) == 0, err
	}); err != nil {
		return err
	}
	for _, p := range held {
		if err := os.Remove(l.file("ADD", "hold", p)); err != nil {
			return err
		}
	}
	return l.look(ctx, adds, slices.Concat(names(swap, stays, killed, sandboxKilled, lost), names(adds, addFails))...)
}

func (l *lab) reboot(ctx context.Context) error {
	if err := l.make(ctx, reboot, kinds[reboot]...); err != nil {
		return err
	}
	if err := l.node.PowerOff(ctx); err != nil {
		return err
	}
	if err := l.node.StartDocker(ctx); err != nil {
		return err
	}
	if err := l.delete(ctx, names(reboot, deleted, lostDeleted, lostFailed)...); err != nil {
		return err
	}
	if err := l.lose(ctx, names(reboot, lostDeleted, lostFailed)...); err != nil {
		return err
	}
	if err := l.tell("DEL", "fail", names(reboot, lostFailed)...); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	return l.look(ctx, reboot, slices.Concat(names(swap, stays, killed, sandboxKilled, lost), names(adds, addFails), names(reboot, stays))...)
}

func (l *lab) end(ctx context.Context) error {
	pods, err := l.c.Client.List(ctx, kube.Pods, ns, "")
	if err != nil {
		return err
	}
	for i := range pods {
		if err := l.c.Client.Delete(ctx, kube.Pods, ns, pods[i].GetName()); err != nil {
			return err
		}
	}
	for i := range pods {
		if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, pods[i].GetName(), patience); err != nil {
			return err
		}
	}
	return l.look(ctx, ended)
}
