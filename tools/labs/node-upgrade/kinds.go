// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"context"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// kind is a kind of pods of the lab node-upgrade-kinds.
type kind struct {
	name string
	pods int
	// set changes a pod; i counts from 0.
	set func(l *kindsLab, p *corev1.PodSpec, i int)
	// owner is the kind of the object that makes the pods; "": the lab does.
	owner string
}

// Labels of the Node. zone has another value when the kubelet is swapped.
const (
	diskLabel, zoneLabel = "disk", "zone"
	hostPorts            = 18100
)

var allKinds = []kind{
	{name: "selector", pods: 10, set: func(_ *kindsLab, p *corev1.PodSpec, _ int) { p.NodeSelector = map[string]string{diskLabel: "ssd"} }},
	{name: "affinity", pods: 10, set: func(_ *kindsLab, p *corev1.PodSpec, _ int) {
		p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: zoneLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}}
	}},
	{name: "hostport", pods: 8, set: func(l *kindsLab, p *corev1.PodSpec, i int) {
		p.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(hostPorts + i), HostIP: l.n.IP}}
	}},
	{name: "limits", pods: 12, set: func(_ *kindsLab, p *corev1.PodSpec, _ int) {
		p.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("8Mi")}}
	}},
	{name: "probes", pods: 10, set: func(_ *kindsLab, p *corev1.PodSpec, _ int) {
		p.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: kube.TCP(8080), PeriodSeconds: 5, TimeoutSeconds: 5, FailureThreshold: 6}
	}},
	{name: "daemon", pods: 4, owner: "DaemonSet"}, // as many DaemonSets
	{name: "stateful", pods: 6, owner: "StatefulSet"},
}

// disk is the size of the node's disk, and free how much of it is free when the kubelet is
// swapped: more than the thresholds want, less than an empty disk.
const (
	disk = int64(12 << 30)
	free = 0.20
)

func nodeUpgradeKindsLab() labkit.Lab {
	return labkit.Lab{
		Name:     "node-upgrade-kinds",
		Folder:   "node-upgrade",
		Summary:  "a node with 60 pods of seven kinds goes from 1.7.0 to 1.9.11 and back, under load",
		Packages: []string{node.CNIPackage},
		Needs:    needs, Timeout: func(labkit.Profile) time.Duration { return 25 * time.Minute },
		Steps:  kindsSteps,
		Oracle: kindsOracle,
	}
}

type kindsLab struct {
	e                *labkit.Env
	c                *node.Cluster
	n                *node.Node
	pods, eps, nodes *kube.Recorder
	loads            []*load.Load
	swaps            *kubeletlab.Swaps
}

func kindsSteps(e *labkit.Env) []labkit.Step {
	l := &kindsLab{e: e}
	steps := []labkit.Step{
		{Text: "start the control plane v1.9.11, and a node with a disk of its own, CNI and the stock kubelet v1.7.0 with its default eviction thresholds", Do: l.start},
		{Text: fmt.Sprintf("create %d pods of %d kinds and a Service for each kind, and send requests; fill the disk to %.0f %% free; give the Node's label %s another value", podsOfKinds(), len(allKinds), free*100, zoneLabel), Do: l.create},
	}
	for _, to := range []string{underTest, old} {
		kill := e.Rand.IntN(2) == 0
		how := map[bool]string{true: "kill -9", false: "SIGTERM"}[kill]
		if byProgram(e) {
			how = "kubectl-holdfast " + swapCommands[to]
		}
		steps = append(steps, labkit.Step{Text: fmt.Sprintf("swap to the kubelet %s (%s), with the default eviction thresholds of its release", to, how),
			Do: func(ctx context.Context) error { return l.swap(ctx, to, kill) }})
	}
	return append(steps, labkit.AllRun(func(ctx context.Context) error {
		for _, ld := range l.loads {
			ld.Stop()
		}
		if err := l.c.Alive(ctx); err != nil {
			return err
		}
		return l.n.PowerOff(ctx) // docker needs minutes to remove so many containers on a busy computer
	}))
}

// byProgram: kubectl-holdfast swaps to Holdfast as it is, and back. Stock kubelets, and gates that
// are off, are the lab's to swap.
func byProgram(e *labkit.Env) bool {
	return e.Variant == labkit.Ours
}

func podsOfKinds() (n int) {
	for _, k := range allKinds {
		n += k.pods
	}
	return n
}

func (l *kindsLab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base)
	if err != nil {
		return err
	}
	l.c = c
	if err := l.disk(ctx, l.e.Path("node1")); err != nil {
		return err
	}
	if l.n, err = l.e.StartNode(ctx, c.APIServer, node.Config{Name: "node1", CNI: true, OwnEviction: true, Unit: kubeletlab.UnitFlags}); err != nil {
		return err
	}
	c.Nodes = []*node.Node{l.n}
	if l.swaps, err = kubeletlab.NewSwaps(ctx, l.e, l.n, l.e.Stock(old, "kubelet")); err != nil {
		return err
	}
	if err := c.WaitNodeReady(ctx, l.n.Name, 90*time.Second); err != nil {
		return err
	}
	_, err = c.Client.PatchMerge(ctx, kube.Nodes, "", l.n.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"ssd",%q:"a"}}}`, diskLabel, zoneLabel))
	return err
}

// disk mounts a file system of its own for the directories of the node: what is free on it is the
// lab's to say, and the thresholds need not be.
func (l *kindsLab) disk(ctx context.Context, dir string) error {
	image := l.e.Path("disk")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := f.Truncate(disk); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := machine.Run(ctx, "mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", image); err != nil {
		return err
	}
	l.e.OnStop("the node's disk", func(ctx context.Context) error {
		if err := wait.Until(ctx, "the node's disk is unmounted", 20*time.Second, func(ctx context.Context) (bool, error) {
			err := machine.Run(ctx, "umount", dir)
			return err == nil, err
		}); err != nil {
			return err
		}
		return os.Remove(image)
	})
	return machine.Run(ctx, "mount", "-o", "loop", image, dir)
}

func (l *kindsLab) podSpec(k kind, i int) corev1.PodSpec {
	web := node.Web("web")
	web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 3, TimeoutSeconds: 5}
	s := node.Pod("", l.n.Name, web).Spec
	s.TerminationGracePeriodSeconds = new(int64(5))
	if k.set != nil {
		k.set(l, &s, i)
	}
	return s
}

// make makes the pods of a kind, or what makes them.
func (l *kindsLab) make(ctx context.Context, k kind) error {
	labels := map[string]string{"app": k.name}
	if err := l.c.Client.Make(ctx, ns, kube.Service(k.name, k.name, 8080)); err != nil {
		return err
	}
	if k.owner == "StatefulSet" {
		return l.c.Client.Make(ctx, ns, &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: k.owner},
			ObjectMeta: metav1.ObjectMeta{Name: k.name},
			Spec: appsv1.StatefulSetSpec{Replicas: new(int32(k.pods)), ServiceName: k.name, PodManagementPolicy: appsv1.ParallelPodManagement,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: l.podSpec(k, 0)}},
		})
	}
	for i := range k.pods {
		name := fmt.Sprintf("%s-%d", k.name, i)
		if k.owner == "DaemonSet" {
			labels := map[string]string{"app": k.name, "set": name}
			spec := l.podSpec(k, i)
			spec.NodeName = "" // the controller's to say
			if err := l.c.Client.Make(ctx, ns, &appsv1.DaemonSet{
				TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: k.owner},
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
			}); err != nil {
				return err
			}
			continue
		}
		p := node.Pod(name, l.n.Name)
		p.Labels, p.Spec = labels, l.podSpec(k, i)
		if err := l.c.Client.Make(ctx, ns, p); err != nil {
			return err
		}
	}
	return nil
}

func (l *kindsLab) create(ctx context.Context) error {
	for _, k := range allKinds {
		if err := l.make(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range allKinds {
		if _, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, k.name, 8*time.Minute, "has all addresses", func(ep *kube.Object) (bool, error) {
			if n := len(kube.ReadyAddresses(ep)); n != k.pods {
				return false, fmt.Errorf("%d of %d", n, k.pods)
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	var err error
	for _, r := range []struct {
		to **kube.Recorder
		of kube.GVR
		in string
	}{{&l.pods, kube.Pods, ns}, {&l.eps, kube.Endpoints, ns}, {&l.nodes, kube.Nodes, ""}} {
		if *r.to, err = l.c.Client.Record(ctx, r.of, r.in); err != nil {
			return err
		}
	}
	for _, k := range allKinds {
		l.loads = append(l.loads, load.Start(ctx, load.Config{Workers: 1, Interval: 200 * time.Millisecond, Targets: func() []string {
			return kubeletlab.RecentAddresses(l.eps, ns, k.name, time.Second, func(string) bool { return true })
		}}))
	}
	if err := l.fill(); err != nil {
		return err
	}
	_, err = l.c.Client.PatchMerge(ctx, kube.Nodes, "", l.n.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"b"}}}`, zoneLabel))
	return err
}
