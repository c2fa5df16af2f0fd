// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletcpu is the check kubelet-cpu: what our patches cost a kubelet
// with many pods. See tools/labs/checks/kubelet-cpu/README.md.
package kubeletcpu

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

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

// tooMuch is how much more CPU than stock counts as a cost. It is far above what
// two runs of the same kubelet differ by, and far below a hash computed anew in
// each pass over the containers.
const tooMuch = 1.3

func init() {
	labkit.Register(labkit.Lab{
		Name:     "kubelet-cpu",
		Folder:   "checks/kubelet-cpu",
		LongOnly: true,
		Summary:  "CPU of a kubelet with many pods at rest, stock against ours",
		Steps:    steps,
		Oracle:   labkit.Oracle{Text: []string{fmt.Sprintf("ours takes less than %.1f times what stock takes", tooMuch)}, Judge: judge},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Variants: []labkit.Variant{labkit.Ours},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 10*time.Minute, 40*time.Minute)
		},
	})
}

// 110 is the kubelet's default --max-pods.
func cpuPods(p labkit.Profile) int {
	return labkit.Pick(p, 20, 110)
}

func cpuWindow(p labkit.Profile) time.Duration {
	return labkit.Pick(p, 30*time.Second, 3*time.Minute)
}

// turns are whose kubelet runs, in their order.
var turns = []string{"stock", "ours", "stock", "ours"}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{
		{Text: "start the control plane v1.9.11 and a node with the stock kubelet v1.9.11", Do: l.start},
		{Text: fmt.Sprintf("create %d pods", cpuPods(e.Profile)), Do: l.create},
	}
	for _, who := range turns {
		s = append(s, labkit.Step{Text: fmt.Sprintf("measure the CPU that the kubelet takes in %v at rest: %s", cpuWindow(e.Profile), who),
			Do: func(ctx context.Context) error { return l.measure(ctx, who) }})
	}
	return append(s, labkit.Step{Text: "look whether all components run", Do: func(ctx context.Context) error { return l.c.Alive(ctx) }})
}

type lab struct {
	e *labkit.Env
	c *node.Cluster
}

// turn is what one kubelet took.
type turn struct {
	Who         string
	CPU, Window time.Duration
	Pods        int
}

func (l *lab) start(ctx context.Context) error {
	var err error
	l.c, err = l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.Stock(base, "kubelet")})
	return err
}

func (l *lab) create(ctx context.Context) error {
	pods := cpuPods(l.e.Profile)
	for i := range pods {
		web := node.Web("web")
		web.Env = []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		web.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 10}
		if err := l.c.Client.Make(ctx, ns, node.Pod(fmt.Sprintf("web-%03d", i), "node1", web)); err != nil {
			return err
		}
	}
	_, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "", 15*time.Minute, "all ready", func(list []kube.Object) (bool, error) {
		ready := 0
		for i := range list {
			if kubeletlab.PodReady(&list[i]) {
				ready++
			}
		}
		if ready != pods {
			return false, fmt.Errorf("%d of %d", ready, pods)
		}
		return true, nil
	})
	return err
}

func (l *lab) measure(ctx context.Context, who string) error {
	n, pods := l.c.Nodes[0], cpuPods(l.e.Profile)
	program := l.e.Stock(base, "kubelet")
	if who == "ours" {
		program = l.e.UnderTest(base, "kubelet")
	}
	if err := n.SwapKubelet(ctx, program); err != nil {
		return err
	}
	if err := kubeletlab.WaitSynced(ctx, n, pods, 3*time.Minute); err != nil {
		return err
	}
	if _, err := kubeletlab.WaitStable(ctx, n, 30*time.Second, 5*time.Minute); err != nil {
		return err
	}
	before, err := cpuTime(n.Kubelet.PID())
	if err != nil {
		return err
	}
	select { // the window that is measured
	case <-time.After(cpuWindow(l.e.Profile)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := cpuTime(n.Kubelet.PID())
	if err != nil {
		return err
	}
	l.e.Record(turn{who, after - before, cpuWindow(l.e.Profile), pods})
	l.e.Step("%s: %.2f s of CPU", who, (after - before).Seconds())
	return nil
}

func judge(h *history.History) labkit.Result {
	used, facts := map[string]time.Duration{}, []string{}
	seen := history.Of[turn](h)
	for _, o := range seen {
		used[o.Who] += o.CPU
		facts = append(facts, fmt.Sprintf("%s: %.2f s of CPU in %v with %d pods", o.Who, o.CPU.Seconds(), o.Window, o.Pods))
	}
	if len(seen) != len(turns) {
		return labkit.InconclusiveBecause("%d turns of %d were measured", len(seen), len(turns))
	}
	if used["stock"] == 0 || used["ours"] == 0 {
		return labkit.InconclusiveBecause("the stock kubelet took %v of CPU and ours %v", used["stock"], used["ours"])
	}
	ratio := used["ours"].Seconds() / used["stock"].Seconds()
	res := labkit.PassedBecause("ours takes %.2f times the CPU of stock", ratio)
	if ratio > tooMuch {
		res = labkit.FailedBecause("ours takes %.2f times the CPU of stock", ratio)
	}
	res.Facts = facts
	return res
}

// cpuTime is user and system time of a process.
func cpuTime(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}
