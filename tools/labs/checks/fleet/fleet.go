// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet is the lab fleet: the kubelets of three nodes are swapped as the rollout of a
// DaemonSet that kubectl-holdfast prints. See tools/labs/checks/fleet/README.md.
package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
	// fleetNS and fleetName are what the manifests name everything, lockName the lock.
	fleetNS, fleetName, lockName = "holdfast-fleet", "holdfast-fleet", "holdfast-fleet-lock"
	// keepIn and program are below a folder that each node has for itself.
	keepIn  = "/var/lib/holdfast"
	program = "/var/lib/lab/kubelet"
	// original is the target of the kubelet that was there first.
	original = "original"
	// podsANode is how many pods of the load a node has.
	podsANode = 2
	// bound is for one stage, on a busy machine.
	bound = 8 * time.Minute
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	fleet := labkit.Lab{
		Name:     "fleet",
		Folder:   "checks/fleet",
		Summary:  "kubectl-holdfast fleet swaps the kubelets 1.7.0 of three nodes by the rollout of a DaemonSet, stops at a bad kubelet, and goes back",
		Packages: []string{node.SystemdPackage},
		Variants: []labkit.Variant{labkit.Ours, labkit.Stock},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kubectl"),
			labkit.StockBinary(base, "kube-controller-manager"),
			{Base: base, Variant: labkit.Ours, Name: "kube-controller-manager"},
			labkit.StockBinary(old, "kubelet"),
			{Base: base, Variant: labkit.Ours, Name: "kubelet"},
		},
		Steps: steps,
		Oracle: labkit.Oracle{Text: []string{
			"two nodes are never in a swap at once, even if all pods are created at once and processes are killed; in the control, where every agent gets the lock, two nodes are",
			"a kubelet that exits at once, a refused flag and a Node that stays not Ready stop the rollout; after each stage every node has a kubelet that answers",
			"no container of a pod is recreated, and no request fails",
		}, Judge: judge},
		Timeout: func(labkit.Profile) time.Duration { return time.Hour },
	}
	return []labkit.Lab{fleet, playbookLab(fleet)}
}

type lab struct {
	e        *labkit.Env
	holdfast string // the program
	c        *node.Cluster
	units    []*kubeletlab.Unit
	load     *load.Load
	// target is the one of the image's kubelet: holdfast-2.
	target string
	before []kubeletlab.Snapshot // by node, at the begin of a stage
	begun  time.Time
	// status is the exit status of the last playbook.
	status int
	mu     sync.Mutex // of killed
	killed []string
	// repeated is how many attempts of the stage failed and were repeated.
	repeated int
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	do := func(name, text string, f func(ctx context.Context) error) labkit.Step {
		return labkit.Step{Text: text, Do: func(ctx context.Context) error { return l.stage(ctx, name, f) }}
	}
	return []labkit.Step{
		{Text: fmt.Sprintf("start the control plane, with PodSecurityPolicies, and %d nodes whose kubelet v1.7.0 is a systemd unit", nodes), Do: func(ctx context.Context) error {
			if err := l.start(ctx, nodes); err != nil {
				return err
			}
			return l.serveImages()
		}},
		{Text: fmt.Sprintf("create %d pods on each node, and send requests to all of them", podsANode), Do: l.create},
		do(first, "kubectl apply of the output of fleet manifests: the target is original, nothing may change", func(ctx context.Context) error {
			return l.applyAndWait(ctx, goodImage, original, 1)
		}),
		do(ends, "set a new target, and an image whose kubelet exits at once: the first node must stop the rollout", func(ctx context.Context) error {
			if err := l.apply(ctx, endingImage, l.target, 1); err != nil {
				return err
			}
			return l.stopped(ctx, 1)
		}),
		do(undone, "kubectl rollout undo", func(ctx context.Context) error { return l.undo(ctx) }),
		do(unready, "put flags with which a Node stays not Ready into the unit of "+illNode+", and set the good image: that node must stop the rollout", l.unready),
		do(readied, "remove the flags, and kubectl rollout undo", l.readied),
		do(refused, "put a flag that Holdfast refuses into the unit of "+badNode+", then set the good image: that node must stop the rollout", func(ctx context.Context) error {
			if err := l.refuse(ctx); err != nil {
				return err
			}
			if err := l.apply(ctx, goodImage, l.target, 3); err != nil {
				return err
			}
			return l.stopped(ctx, 3)
		}),
		do(again, newNode+" joins the cluster; remove the flag and apply a new attempt; an agent is evicted in a swap: all nodes get Holdfast", func(ctx context.Context) error {
			if err := l.join(ctx); err != nil {
				return err
			}
			if err := l.unit(badNode).Node.Run(ctx, "rm", kubeletlab.ExtraFile); err != nil {
				return err
			}
			if err := l.apply(ctx, goodImage, l.target, 4); err != nil {
				return err
			}
			if err := l.evict(ctx, 4); err != nil {
				return err
			}
			return l.rolled(ctx)
		}),
		do(back, "cordon "+illNode+", kubectl rollout undo --to-revision of the target original; "+newNode+" fails and leaves the cluster with the lock, which is freed; during the next swap the API server is away for 15 s, and another controller manager takes over: all other nodes go back", l.back),
		do(atOnce, "delete the DaemonSet and apply it with the target Holdfast: all pods are created at once; kill -9 of a unit, of an agent, and of both", l.kills),
		do(crashes, "delete the DaemonSet and apply it with the target original; kill -9 of a kubelet, of a dockerd, and of both, which start again; repeat a failed attempt", l.crashes),
		do(control, "control: delete the DaemonSet and apply it with the target Holdfast, while the lab takes the lock from every holder", l.control),
		{Text: "stop the load", Do: func(context.Context) error {
			l.e.Record(loaded{l.load.Stop()})
			return nil
		}},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

// start starts the control plane and some nodes.
func (l *lab) start(ctx context.Context, count int) error {
	var err error
	if l.holdfast, err = l.e.Holdfast(); err != nil {
		return err
	}
	kubelet := l.e.Ours(base, "kubelet").Path
	version, err := exec.CommandContext(ctx, kubelet, "--version").Output()
	if err != nil {
		return err
	}
	_, build, ok := strings.Cut(strings.TrimSpace(string(version)), "+holdfast.")
	if !ok {
		return fmt.Errorf("%s is %s, which is not Holdfast", kubelet, version)
	}
	l.target = "holdfast-" + build
	cc := node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver"), Admission: []string{"NamespaceLifecycle", "LimitRanger", "ServiceAccount",
			"DefaultStorageClass", "DefaultTolerationSeconds", "NodeRestriction", "PodSecurityPolicy", "ResourceQuota"}},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.UnderTest(base, "kube-controller-manager")},
	}
	for i := range count {
		cc.Nodes = append(cc.Nodes, l.nodeConfig(fmt.Sprintf("node%d", i+1)))
	}
	if l.c, err = l.e.StartCluster(ctx, cc); err != nil {
		return err
	}
	for _, n := range l.c.Nodes {
		if err := l.takeNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// kubernetesIP is the address of the Service kubernetes, the first of kube.ServiceCIDR.
const kubernetesIP = "10.96.0.1"

// policy is for the lab's own pods, which the administrator makes: no ServiceAccount may use it.
const policy = `
apiVersion: extensions/v1beta1
kind: PodSecurityPolicy
metadata: {name: lab}
spec: {volumes: ["*"], seLinux: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}}
`

func (l *lab) create(ctx context.Context) error {
	if _, err := l.c.Client.CreateYAML(ctx, "", policy); err != nil {
		return err
	}
	if err := l.c.Client.Make(ctx, ns, kube.Service("web", "web", 8080)); err != nil {
		return err
	}
	endpoints, err := l.c.Client.Record(ctx, kube.Endpoints, ns)
	if err != nil {
		return err
	}
	for _, n := range l.c.Nodes {
		for i := range podsANode {
			text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web-%s-%d, labels: {app: web}}\nspec:\n  nodeName: %s\n  containers: [{name: web, image: %q, imagePullPolicy: IfNotPresent}]\n",
				n.Name, i, n.Name, node.WebImage("v1"))
			if _, err := l.c.Client.CreateYAML(ctx, ns, text); err != nil {
				return err
			}
		}
	}
	targets := func() []string {
		ep := endpoints.Latest(ns, "web")
		if ep == nil {
			return nil
		}
		return kube.ReadyAddresses(ep)
	}
	if err := wait.Until(ctx, "all pods of the load ready", 3*time.Minute, func(context.Context) (bool, error) {
		return wait.AtLeast(len(targets()), len(l.c.Nodes)*podsANode)
	}); err != nil {
		return err
	}
	l.load = load.Start(ctx, load.Config{Targets: targets, Interval: 100 * time.Millisecond})
	l.e.OnStop("load", func(context.Context) error { l.load.Stop(); return nil })
	return nil
}

// kubectl runs the release's own.
func (l *lab) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, l.e.Stock(base, "kubectl").Path, append([]string{"--kubeconfig=" + l.c.APIServer.AdminKubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+l.e.Path("kubectl-home"))
	out, err := cmd.CombinedOutput()
	l.e.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// apply applies what fleet manifests prints.
func (l *lab) apply(ctx context.Context, image, target string, attempt int) error {
	file := l.e.Path(fmt.Sprintf("manifests-%s-%d.yaml", target, attempt))
	out, err := exec.CommandContext(ctx, l.holdfast, "fleet", "manifests", "--image", image, "--target", target, fmt.Sprintf("--attempt=%d", attempt),
		"--keep-in", keepIn, "--settle", "5s", "--min-ready", "5s").Output()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, out, 0o644); err != nil {
		return err
	}
	return l.kubectl(ctx, "apply", "-f", file)
}

func (l *lab) applyAndWait(ctx context.Context, image, target string, attempt int) error {
	if err := l.apply(ctx, image, target, attempt); err != nil {
		return err
	}
	return l.rolled(ctx)
}

func (l *lab) undo(ctx context.Context, args ...string) error {
	if err := l.kubectl(ctx, append([]string{"-n", fleetNS, "rollout", "undo", "ds/" + fleetName}, args...)...); err != nil {
		return err
	}
	return l.rolled(ctx)
}

// rolled waits until each node has a ready pod of the newest template, as long as a node must be.
// status.numberAvailable is not asked: the controller of 1.9 forgets to count a pod that became
// ready within minReadySeconds of another, until something else happens.
func (l *lab) rolled(ctx context.Context) error {
	if err := wait.Every(ctx, "each node has a ready pod of the newest template", time.Second, bound, func(ctx context.Context) (bool, error) {
		ds, err := l.c.Client.Get(ctx, kube.DaemonSets, fleetNS, fleetName)
		if err != nil {
			return false, err
		}
		if kube.Int(ds, "status", "observedGeneration") != ds.GetGeneration() || kube.Int(ds, "status", "updatedNumberScheduled") != int64(len(l.c.Nodes)) {
			return false, nil
		}
		pods, err := l.c.Client.List(ctx, kube.Pods, fleetNS, "app="+fleetName)
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range pods {
			if kubeletlab.PodReady(&pods[i]) {
				ready++
			}
		}
		return wait.AtLeast(ready, len(l.c.Nodes))
	}); err != nil {
		return err
	}
	return wait.Pause(ctx, 7*time.Second)
}
