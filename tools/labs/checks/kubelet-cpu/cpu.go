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

	"holdfast/tools/labkit"
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
		Plan: func(p labkit.Profile) []string {
			return []string{
				fmt.Sprintf("start the control plane v1.9.11 and a node with the stock kubelet v1.9.11, and create %d pods", cpuPods(p)),
				fmt.Sprintf("measure the CPU that the kubelet takes in %v at rest: stock, ours, stock, ours", cpuWindow(p)),
				fmt.Sprintf("oracle: ours takes less than %.1f times what stock takes", tooMuch),
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Variants: []labkit.Variant{labkit.Ours},
		Timeout: func(p labkit.Profile) time.Duration {
			if p == labkit.Long {
				return 40 * time.Minute
			}
			return 10 * time.Minute
		},
		Run: runCPU,
	})
}

// 110 is the kubelet's default --max-pods.
func cpuPods(p labkit.Profile) int {
	if p == labkit.Long {
		return 110
	}
	return 20
}

func cpuWindow(p labkit.Profile) time.Duration {
	if p == labkit.Long {
		return 3 * time.Minute
	}
	return 30 * time.Second
}

func runCPU(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		Nodes:             []node.Config{{Name: "node1", Kubelet: e.Stock(base, "kubelet")}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	n, pods := c.Nodes[0], cpuPods(e.Profile)
	e.Step("create %d pods", pods)
	for i := range pods {
		if _, err := c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web-%03d}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    env: [{name: A, value: b}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {requests: {cpu: 1m}}
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 10}
`, i, node.WebImage("v1"))); err != nil {
			return labkit.Result{}, err
		}
	}
	if _, err := c.Client.WaitList(ctx, kube.Pods, ns, "", 15*time.Minute, "all ready", func(l []kube.Object) (bool, error) {
		ready := 0
		for i := range l {
			if kubeletlab.PodReady(&l[i]) {
				ready++
			}
		}
		if ready != pods {
			return false, fmt.Errorf("%d of %d", ready, pods)
		}
		return true, nil
	}); err != nil {
		return labkit.Result{}, err
	}
	used := map[string]time.Duration{}
	for _, who := range []string{"stock", "ours", "stock", "ours"} {
		program := e.Stock(base, "kubelet")
		if who == "ours" {
			program = e.UnderTest(base, "kubelet")
		}
		if err := n.SwapKubelet(ctx, program); err != nil {
			return labkit.Result{}, err
		}
		if err := kubeletlab.WaitSynced(ctx, n, pods, 3*time.Minute); err != nil {
			return labkit.Result{}, err
		}
		if _, err := kubeletlab.WaitStable(ctx, n, 30*time.Second, 5*time.Minute); err != nil {
			return labkit.Result{}, err
		}
		before, err := cpuTime(n.Kubelet.Pid)
		if err != nil {
			return labkit.Result{}, err
		}
		select { // the window that is measured
		case <-time.After(cpuWindow(e.Profile)):
		case <-ctx.Done():
			return labkit.Result{}, context.Cause(ctx)
		}
		after, err := cpuTime(n.Kubelet.Pid)
		if err != nil {
			return labkit.Result{}, err
		}
		used[who] += after - before
		e.Step("%s: %.2f s of CPU in %v", who, (after - before).Seconds(), cpuWindow(e.Profile))
		e.Fact("%s: %.2f s of CPU in %v with %d pods", who, (after - before).Seconds(), cpuWindow(e.Profile), pods)
	}
	if used["stock"] == 0 {
		return labkit.Result{}, fmt.Errorf("the stock kubelet took no CPU")
	}
	ratio := used["ours"].Seconds() / used["stock"].Seconds()
	if ratio > tooMuch {
		return labkit.ReproducedBecause("ours takes %.2f times the CPU of stock", ratio), nil
	}
	return labkit.AbsentBecause("ours takes %.2f times the CPU of stock", ratio), nil
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
