// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package subpathrollback is the lab subpath-rollback: whether the user's files
// survive when a kubelet that does not know 1.9's subPath mounts removes the
// directory of a pod. See tools/labs/subpath-rollback/README.md.
package subpathrollback

import (
	"context"
	"fmt"
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

func init() {
	labkit.Register(labkit.Lab{
		Name:    "subpath-rollback",
		Summary: "a kubelet deletes the user's files through subPath mounts that an other kubelet left",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0; a pod with subPaths starts under it",
				"replace the kubelet (ours: by one that keeps the binds: stock v1.9.11 in the long profile, else ours with " + gate + "=false)",
				"stop it, force the deletion of a pod, start it again: it removes the directory of a pod whose volume it does not know",
				fmt.Sprintf("ours: the kubelet under test takes over. Start %d kinds of pods; ours: look from inside, restart containers, the kubelet, docker", len(kinds)),
				"go back to v1.7.0" + map[labkit.Profile]string{labkit.Long: " (ours: by kill -9, and after that again for v1.8.15 and for stock v1.9.11)"}[p] + ", delete all pods",
				"oracle: each file below the host directories has its checksum, each pod's directory is gone; the kubelet's log shows that it removed orphans",
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(old, "kubelet"),
			labkit.StockBinary("v1.8.15", "kubelet"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Timeout: func(p labkit.Profile) time.Duration {
			if p == labkit.Long {
				return 30 * time.Minute
			}
			return 10 * time.Minute
		},
		Run: run,
	})
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	root string // of the host directories: same/ and other/
	pods map[string]*pod
	// sums is the checksum of each file below root, as it must be.
	sums map[string]string
}

// pod is one that runs.
type pod struct {
	kind
	uid string
}

// judgement is what one kubelet did to the pods that were deleted.
type judgement struct {
	what string
	lost []string // files, and directories of pods that stay
	gone int      // directories of pods that were removed
	kept int      // files
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		// At 3 the kubelet says which orphans it removes.
		Nodes: []node.Config{{Name: "node1", Kubelet: e.Stock(old, "kubelet"), KubeletArgs: []string{"--v=3"}}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c, node: c.Nodes[0], pods: map[string]*pod{}, sums: map[string]string{}}
	var js []judgement
	steps := []func(context.Context) ([]judgement, error){l.prepare, l.forced, l.back}
	for _, step := range steps {
		j, err := step(ctx)
		if err != nil {
			return labkit.Result{}, err
		}
		js = append(js, j...)
	}
	var bad []string
	kept := 0
	for _, j := range js {
		e.Fact("%-44s %2d files kept, %2d pod directories removed, %2d lost or left", j.what+":", j.kept, j.gone, len(j.lost))
		if len(j.lost) > 0 {
			bad = append(bad, fmt.Sprintf("%s: %s", j.what, strings.Join(j.lost, ", ")))
		}
		kept += j.kept
	}
	switch {
	case len(bad) == 0:
		return labkit.AbsentBecause("%d looks at a file, every one as it was; no pod directory is left", kept), nil
	case e.Variant != labkit.Ours && len(bad) < len(js):
		return labkit.InconclusiveBecause("only %s", strings.Join(bad, "; ")), nil
	}
	return labkit.ReproducedBecause("%s", strings.Join(bad, "; ")), nil
}

func (l *lab) ours() bool { return l.e.Variant == labkit.Ours }

// binder is a kubelet that leaves the binds: the one under test, or for ours
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
func (l *lab) prepare(ctx context.Context) ([]judgement, error) {
	l.e.Step("make the host directories, start a pod under kubelet %s", old)
	l.root = l.e.Path("node1", "host")
	// The second one is mounted in the node's own mount namespace.
	if err := l.node.Run(ctx, "bash", "-euc", `mkdir -p "$1/same" "$1/other"; mount -t tmpfs none "$1/other"`, "-", l.root); err != nil {
		return nil, err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, objects); err != nil {
		return nil, err
	}
	return nil, l.create(ctx, hostKind("", "same"), "first")
}

// forced is a pod that is deleted while no kubelet runs. Its hostPath volume is
// nowhere on the disk, so that only the clean-up of orphans deals with it.
func (l *lab) forced(ctx context.Context) ([]judgement, error) {
	l.e.Step("replace kubelet %s", old)
	if err := l.swap(ctx, l.binder(), false); err != nil {
		return nil, err
	}
	// The volume of a token is found again, after three minutes, and the pod's
	// directory stays until then.
	forced := hostKind("", "same")
	forced.spec = "automountServiceAccountToken: false"
	if err := l.create(ctx, forced, "forced"); err != nil {
		return nil, err
	}
	if err := l.create(ctx, hostKind("", "same"), "taken"); err != nil {
		return nil, err
	}
	if n, err := l.binds(ctx); err != nil {
		return nil, err
	} else if n < 8 { // stock has recreated the first pod too
		return nil, fmt.Errorf("the kubelet made %d binds for two pods with 4 subPaths each", n)
	}
	l.e.Step("stop the kubelet, force the deletion of pod forced, start the kubelet")
	if err := l.node.StopKubelet(); err != nil {
		return nil, err
	}
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, "forced"); err != nil {
		return nil, err
	}
	next := l.binder()
	if l.ours() && l.e.Profile == labkit.Long {
		next = l.e.UnderTest(base, "kubelet") // what stock v1.9.11 left
	}
	if err := l.node.StartKubelet(ctx, next); err != nil {
		return nil, err
	}
	j, err := l.judge(ctx, "pod deleted while the kubelet was down", "forced")
	return []judgement{j}, err
}

// back is the pods of all kinds, and the way back.
func (l *lab) back(ctx context.Context) ([]judgement, error) {
	if l.ours() {
		l.e.Step("the kubelet under test takes over")
		if err := l.swap(ctx, l.e.UnderTest(base, "kubelet"), false); err != nil {
			return nil, err
		}
		// The bind of pod taken, whose container goes on.
		if err := l.unbound(ctx); err != nil {
			return nil, err
		}
	}
	tos := []string{old}
	if l.ours() && l.e.Profile == labkit.Long {
		tos = append(tos, "v1.8.15", base)
	}
	var js []judgement
	names := []string{"first", "taken"}
	for i, to := range tos {
		if i > 0 {
			names = nil
			l.e.Step("the kubelet under test takes over from %s", tos[i-1])
			if err := l.swap(ctx, l.e.UnderTest(base, "kubelet"), false); err != nil {
				return nil, err
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
				return nil, err
			}
			names = append(names, name)
		}
		for _, name := range names {
			if name == "first" || name == "taken" {
				continue // an other kubelet started them
			}
			if err := l.wait(ctx, name); err != nil {
				return nil, err
			}
		}
		n, err := l.binds(ctx)
		if err != nil {
			return nil, err
		}
		if l.ours() {
			if err := l.unbound(ctx); err != nil {
				return nil, err
			}
			if err := l.live(ctx, i); err != nil {
				return nil, err
			}
		} else if n < len(names) {
			return nil, fmt.Errorf("there are %d binds of %d pods before the way back", n, len(names))
		}
		l.e.Step("go back to %s, delete %d pods", to, len(names))
		if err := l.swap(ctx, l.e.Stock(to, "kubelet"), l.e.Profile == labkit.Long); err != nil {
			return nil, err
		}
		if to != old {
			if err := l.restart(ctx, fmt.Sprintf("host-same-%d", i)); err != nil {
				return nil, fmt.Errorf("under %s: %w", to, err)
			}
		}
		for _, name := range names {
			if err := l.c.Client.Delete(ctx, kube.Pods, ns, name); err != nil {
				return nil, err
			}
		}
		j, err := l.judge(ctx, "back to "+to, names...)
		if err != nil {
			return nil, err
		}
		js = append(js, j)
	}
	return js, nil
}

// live is what a container with subPaths must stand under ours.
func (l *lab) live(ctx context.Context, round int) error {
	if round > 0 {
		return nil
	}
	l.e.Step("look from inside; restart containers, the kubelet, docker")
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
