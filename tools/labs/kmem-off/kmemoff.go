// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kmemoff is the lab kmem-off: what a kubelet writes into the memory cgroup of a pod with
// limits. See tools/labs/kmem-off/README.md.
package kmemoff

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	ns   = "default"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "kmem-off",
		Summary: "the kubelet turns kernel memory accounting on for a pod with limits",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle:  oracle,
		Needs:   labkit.KubeletNeeds(base),
	}}
}

type lab struct {
	e      *labkit.Env
	c      *node.Cluster
	node   *node.Node
	writes *writes
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the kubelet under test", Do: l.start},
		{Text: "watch the memory cgroups, and create the pods guaranteed, burstable and free; free has no limits", Do: l.create},
		{Text: "restart the kubelet; the pods must stay", Do: l.again},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.UnderTest(base, "kubelet")})
	if err != nil {
		return err
	}
	l.c, l.node = c, c.Nodes[0]
	return nil
}

// seen is what the kubelet wrote into the memory cgroup of a pod; KernelMemory into
// memory.kmem.limit_in_bytes, Memory into memory.limit_in_bytes.
type seen struct {
	Pod                  string
	KernelMemory, Memory int
	Limited              bool // the pod has a limit of memory
}

// restarted is how many containers of the pods a start of the kubelet left alone, and how often it
// wrote into the kernel memory of their cgroups.
type restarted struct{ Kept, Gone, KernelMemory int }

func (l *lab) create(ctx context.Context) error {
	w, err := watch()
	if err != nil {
		return err
	}
	l.writes = w
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, p := range []struct {
		name string
		r    corev1.ResourceRequirements
	}{
		{"guaranteed", corev1.ResourceRequirements{Requests: list("50m", "64Mi"), Limits: list("50m", "64Mi")}},
		{"burstable", corev1.ResourceRequirements{Requests: list("10m", "16Mi"), Limits: list("500m", "64Mi")}},
		{"free", corev1.ResourceRequirements{}},
	} {
		web := node.Web("web")
		web.Resources = p.r
		if err := l.c.Client.Make(ctx, ns, node.Pod(p.name, "node1", web)); err != nil {
			return err
		}
		o, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, p.name, 2*time.Minute, "is ready", func(o *kube.Object) (bool, error) {
			return kubeletlab.PodReady(o), nil
		})
		if err != nil {
			return err
		}
		cgroup := "/pod" + string(o.GetUID()) + "/"
		l.e.Record(seen{Pod: p.name, KernelMemory: l.writes.count(cgroup + "memory.kmem.limit_in_bytes"),
			Memory: l.writes.count(cgroup + "memory.limit_in_bytes"), Limited: p.r.Limits != nil})
	}
	return nil
}

func (l *lab) again(ctx context.Context) error {
	defer l.writes.close()
	before, err := kubeletlab.Take(ctx, l.node)
	if err != nil {
		return err
	}
	wrote := l.writes.kernelMemory(l.node.CgroupPath())
	if err := l.node.SwapKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, 3, time.Minute); err != nil {
		return err
	}
	after, err := kubeletlab.WaitStable(ctx, l.node, 5*time.Second, time.Minute)
	if err != nil {
		return err
	}
	d := kubeletlab.Compare(before, after, func(string, kubeletlab.Container) bool { return true })
	l.e.Record(restarted{Kept: len(d.Kept), Gone: len(before) - len(d.Kept), KernelMemory: l.writes.kernelMemory(l.node.CgroupPath()) - wrote})
	return nil
}

var oracle = labkit.Oracle{
	Text: []string{
		"reproduced: the kubelet wrote a limit of kernel memory into the cgroup of a pod with a memory limit, which turns kernel memory accounting on",
		"absent: it wrote the memory limit there, and no limit of kernel memory; a restart of the kubelet also wrote none and kept all containers",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	pods, again := history.Of[seen](h), history.One[restarted](h)
	limited := 0
	for _, p := range pods {
		switch {
		case p.KernelMemory > 0:
			return labkit.ReproducedBecause("%d writes into memory.kmem.limit_in_bytes of pod %s", p.KernelMemory, p.Pod)
		case p.Limited && p.Memory == 0:
			return labkit.InconclusiveBecause("no write into memory.limit_in_bytes of pod %s was recorded", p.Pod)
		case p.Limited:
			limited++
		}
	}
	switch {
	case len(pods) != 3 || limited != 2:
		return labkit.InconclusiveBecause("%d pods, %d of them with limits, want 3 and 2", len(pods), limited)
	case again.Kept == 0:
		return labkit.InconclusiveBecause("no container was recorded before and after the restart of the kubelet")
	case again.KernelMemory > 0:
		return labkit.ReproducedBecause("the restarted kubelet wrote %d times into memory.kmem.limit_in_bytes", again.KernelMemory)
	case again.Gone > 0:
		return labkit.ReproducedBecause("the restart of the kubelet lost %d of %d containers", again.Gone, again.Gone+again.Kept)
	}
	return labkit.AbsentBecause("2 pods got memory limits and no limit of kernel memory; %d containers survived a restart of the kubelet", again.Kept)
}
