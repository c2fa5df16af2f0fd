// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package subpathrollback is the lab subpath-rollback: whether the user's files
// survive when a kubelet that does not know 1.9's subPath mounts removes the
// directory of a pod. See tools/labs/subpath-rollback/README.md.
package subpathrollback

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
	gate = "SubpathUnbindAfterStart"
)

var image = node.WebImage("v1")

// Labs are those of this folder.
func Labs() []labkit.Lab {
	plain := labkit.Lab{
		Name:      "subpath-rollback",
		Summary:   "a kubelet deletes the user's files through subPath mounts that another kubelet left",
		Test:      []labkit.Variant{labkit.Ours},
		Steps:     func(e *labkit.Env) []labkit.Step { return steps(e, "") },
		Oracle:    oracle,
		Needs:     labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet"), labkit.StockBinary(base, "kubelet")),
		LongNeeds: []labkit.Binary{labkit.StockBinary("v1.8.15", "kubelet")},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 10*time.Minute, 30*time.Minute)
		},
	}
	link := plain
	link.Name, link.Folder = "subpath-rollback-symlink", "subpath-rollback"
	link.Summary += ", with a symbolic link as the kubelet's root directory"
	link.Test = nil // TestSubpathSymlink asks the same of the kubelet's code
	link.Steps = func(e *labkit.Env) []labkit.Step { return steps(e, "link") }
	return []labkit.Lab{plain, link}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	root string // of the host directories: same/ and other/
	// link, if any, is the name of a symbolic link to the kubelet's root directory, in it.
	link string
	pods map[string]*pod
	// sums is the checksum of each file below root, as it must be.
	sums map[string]string
}

// pod is one that runs.
type pod struct {
	kind
	uid string
}

func steps(e *labkit.Env, link string) []labkit.Step {
	l := &lab{e: e, link: link, pods: map[string]*pod{}, sums: map[string]string{}}
	binder := "the kubelet under test"
	switch {
	case l.ours() && e.Profile == labkit.Long:
		binder = "stock v1.9.11, which keeps the binds"
	case l.ours():
		binder = "ours with " + gate + "=false, which keeps the binds"
	}
	s := []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0", Do: l.startCluster},
		{Text: "create the host directories, start a pod with subPaths under v1.7.0", Do: l.prepare},
		{Text: "replace the kubelet with " + binder + "; stop this kubelet, force-delete a pod, and start the kubelet again: it removes the directory of a pod that it no longer knows", Do: l.forced},
	}
	if l.ours() {
		s = append(s, labkit.Step{Text: "the kubelet under test takes over", Do: l.takeOver})
	}
	for i, to := range l.tos() {
		look, how := "", ""
		if l.ours() && i == 0 {
			look = "; read and write inside the containers, restart containers, the kubelet and docker"
		}
		if e.Profile == labkit.Long {
			how = " by kill -9"
		}
		s = append(s, labkit.Step{Text: fmt.Sprintf("start %d kinds of pods under the kubelet under test%s; go back to %s%s, delete all pods", len(kinds), look, to, how),
			Do: func(ctx context.Context) error { return l.back(ctx, i, to) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

// tos are the releases that the node goes back to.
func (l *lab) tos() []string {
	if l.ours() && l.e.Profile == labkit.Long {
		return []string{old, "v1.8.15", base}
	}
	return []string{old}
}

func (l *lab) startCluster(ctx context.Context) error {
	// At 3 the kubelet says which orphans it removes.
	args := []string{"--v=3"}
	if l.link != "" {
		dir := l.e.Path("node1", "kubelet")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(".", filepath.Join(dir, l.link)); err != nil {
			return err
		}
		args = append(args, "--root-dir=/var/lib/kubelet/"+l.link)
	}
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.Stock(old, "kubelet"), KubeletArgs: args})
	if err == nil {
		l.c, l.node = c, c.Nodes[0]
	}
	return err
}

func (l *lab) ours() bool { return l.e.Variant == labkit.Ours }

// binder is a kubelet that leaves the binds: the kubelet under test, or for ours
// what an operator may have had before.
func (l *lab) binder() kube.Program {
	switch {
	case !l.ours():
		return l.e.UnderTest(base, "kubelet")
	case l.e.Profile == labkit.Long:
		return l.e.Stock(base, "kubelet")
	}
	return l.e.UnderTest(base, "kubelet").WithGates(map[string]bool{gate: false})
}

// prepare makes the host directories and starts a pod under the old kubelet.
func (l *lab) prepare(ctx context.Context) error {
	l.e.Step("create the host directories, start a pod under kubelet %s", old)
	l.root = l.e.Path("node1", "host")
	// The second one is mounted in the node's own mount namespace.
	if err := l.node.Run(ctx, "bash", "-euc", `mkdir -p "$1/same" "$1/other"; mount -t tmpfs none "$1/other"`, "-", l.root); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, objects); err != nil {
		return err
	}
	return l.create(ctx, hostKind("", "same"), "first")
}

// forced is a pod that is deleted while no kubelet runs. Its hostPath volume is
// nowhere on the disk, so that only the clean-up of orphans deals with it.
func (l *lab) forced(ctx context.Context) error {
	l.e.Step("replace kubelet %s", old)
	if err := l.swap(ctx, l.binder(), false); err != nil {
		return err
	}
	// The volume of a token is found again, after three minutes, and the pod's
	// directory stays until then.
	forced := hostKind("", "same")
	forced.spec = "automountServiceAccountToken: false"
	if err := l.create(ctx, forced, "forced"); err != nil {
		return err
	}
	if err := l.create(ctx, hostKind("", "same"), "taken"); err != nil {
		return err
	}
	if n, err := l.binds(); err != nil {
		return err
	} else if n < 8 { // stock has recreated the first pod too
		return fmt.Errorf("the kubelet made %d binds for two pods with 4 subPaths each", n)
	}
	l.e.Step("stop the kubelet, force-delete pod forced, start the kubelet")
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, "forced"); err != nil {
		return err
	}
	next := l.binder()
	if l.ours() && l.e.Profile == labkit.Long {
		next = l.e.UnderTest(base, "kubelet") // what stock v1.9.11 left
	}
	if err := l.node.StartKubelet(ctx, next); err != nil {
		return err
	}
	return l.dealt(ctx, whatForced, "forced")
}

// takeOver has the kubelet under test clean up after the one that keeps the binds.
func (l *lab) takeOver(ctx context.Context) error {
	if err := l.swap(ctx, l.e.UnderTest(base, "kubelet"), false); err != nil {
		return err
	}
	// The bind of pod taken, whose container goes on.
	return l.unbound(ctx)
}

// back is the pods of all kinds, and the way back to a release, the i-th.
func (l *lab) back(ctx context.Context, i int, to string) error {
	names := []string{"first", "taken"}
	if i > 0 {
		names = nil
		l.e.Step("the kubelet under test takes over from %s", l.tos()[i-1])
		if err := l.swap(ctx, l.e.UnderTest(base, "kubelet"), false); err != nil {
			return err
		}
	}
	l.e.Step("start %d kinds of pods under the kubelet under test", len(kinds))
	for _, k := range kinds {
		// After a stock v1.9.11 the old kubelet recreates containers, and waits for
		// the hook before it deletes the pod.
		if k.name == "hook" && (l.e.Variant == labkit.Stock || l.binder().Variant == labkit.Stock) {
			continue
		}
		name := fmt.Sprintf("%s-%d", k.name, i)
		if err := l.make(ctx, k, name); err != nil {
			return err
		}
		names = append(names, name)
	}
	for _, name := range names {
		if name == "first" || name == "taken" {
			continue // an other kubelet started them
		}
		if err := l.wait(ctx, name); err != nil {
			return err
		}
	}
	n, err := l.binds()
	if err != nil {
		return err
	}
	if l.ours() {
		if err := l.unbound(ctx); err != nil {
			return err
		}
		if err := l.live(ctx, i); err != nil {
			return err
		}
	} else if n < len(names) {
		return fmt.Errorf("there are %d binds of %d pods before the way back", n, len(names))
	}
	l.e.Step("go back to %s, delete %d pods", to, len(names))
	if err := l.swap(ctx, l.e.Stock(to, "kubelet"), l.e.Profile == labkit.Long); err != nil {
		return err
	}
	if to != old {
		if err := l.restart(ctx, fmt.Sprintf("host-same-%d", i)); err != nil {
			return fmt.Errorf("under %s: %w", to, err)
		}
	}
	for _, name := range names {
		if err := l.c.Client.Delete(ctx, kube.Pods, ns, name); err != nil {
			return err
		}
	}
	return l.dealt(ctx, whatBack+to, names...)
}

// live is what a container with subPaths must stand under ours.
func (l *lab) live(ctx context.Context, round int) error {
	if round > 0 {
		return nil
	}
	l.e.Step("read and write inside the containers; restart containers, the kubelet and docker")
	if err := l.insideAll(ctx); err != nil {
		return err
	}
	// One that v1.7.0 started, one that an other kubelet started, one of its own.
	for _, name := range []string{"first", "taken", "host-other-0"} {
		if err := l.restart(ctx, name); err != nil {
			return err
		}
	}
	if err := l.byHand(ctx, "host-same-0"); err != nil {
		return err
	}
	if err := l.unbound(ctx); err != nil {
		return err
	}
	before, err := kubeletlab.Take(ctx, l.node)
	if err != nil {
		return err
	}
	if l.e.Profile == labkit.Long {
		err = l.node.KillKubelet()
	} else {
		err = l.node.StopKubelet()
	}
	if err == nil {
		err = l.node.StopDocker()
	}
	if err == nil {
		err = l.node.StartDocker(ctx)
	}
	if err == nil {
		err = l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet"))
	}
	if err == nil {
		err = l.mounted(ctx)
	}
	if err != nil {
		return err
	}
	after, err := kubeletlab.Take(ctx, l.node)
	if err != nil {
		return err
	}
	d := kubeletlab.Compare(before, after, func(key string, c kubeletlab.Container) bool {
		return !c.Sandbox && !strings.HasPrefix(c.Pod, "crash") && !strings.HasPrefix(c.Pod, "no-start")
	})
	if len(d.Recreated)+len(d.Gone) > 0 {
		return fmt.Errorf("docker's or the kubelet's restart ended containers: %q, %q", d.Recreated, d.Gone)
	}
	if err := l.unbound(ctx); err != nil {
		return err
	}
	return l.insideAll(ctx)
}
