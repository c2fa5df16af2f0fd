// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionacrossrestart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// trial is one reason for which pods that run would not be admitted as new ones.
type trial struct {
	name, text string
	// demand makes a pod that only fits before.
	demand func(*corev1.Pod)
	// before the pods are made, and while no kubelet runs; either may be nil.
	before, down func(context.Context) error
	// args of the kubelet that starts.
	args func() []string
	// fails is the path of a list that is answered with 503 until met says that what the
	// trial is about is there.
	fails string
	met   func(context.Context) (string, error)
	// fits is whether a new pod fits all the same.
	fits bool
}

// The labels of the Node that pods ask for.
const (
	diskLabel = "holdfast.test/disk"
	rackLabel = "holdfast.test/rack"
)

const (
	nodesPath = "/api/v1/nodes"
	podsPath  = "/api/v1/pods"
)

// names of the trials, in their order: what one leaves does not touch the next.
var names = []string{"node unknown", "label changed", "reserved raised", "disk pressure"}

func (l *lab) trials() []trial {
	none := func() []string { return nil }
	label := func(key, value string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := l.c.Client.PatchMerge(ctx, kube.Nodes, "", l.node.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))
			return err
		}
	}
	return []trial{{
		name: names[0], text: "start the kubelet under test; the proxy lets it list its pods well before its Node",
		demand: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{diskLabel: "ssd"} },
		before: label(diskLabel, "ssd"), args: none, fails: nodesPath, met: l.unknown, fits: true,
	}, {
		name: names[1], text: "change the label that the pods require, and start the kubelet",
		demand: func(p *corev1.Pod) { // by both ways to ask
			if strings.HasSuffix(p.Name, "0") {
				p.Spec.NodeSelector = map[string]string{rackLabel: "r1"}
				return
			}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: rackLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}}}}}}}
		},
		before: label(rackLabel, "r1"), down: label(rackLabel, "r2"), args: none, fails: podsPath,
		met: func(ctx context.Context) (string, error) {
			return l.ofNode(ctx, func(n *kube.Object) string {
				if v := n.GetLabels()[rackLabel]; v == "r2" {
					return rackLabel + "=" + v
				}
				return ""
			})
		},
	}, {
		name: names[2], text: "start the kubelet with a --system-reserved that leaves less cpu than one pod requests",
		demand: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(l.cpu/5, resource.DecimalSI)}
		},
		args:  func() []string { return []string{fmt.Sprintf("--system-reserved=cpu=%dm", l.cpu-l.cpu/10)} },
		fails: podsPath,
		met: func(ctx context.Context) (string, error) {
			return l.ofNode(ctx, func(n *kube.Object) string {
				if cpu := allocatable(n); cpu < l.cpu/5 {
					return fmt.Sprintf("%dm of %dm are available, a pod requests %dm", cpu, l.cpu, l.cpu/5)
				}
				return ""
			})
		},
	}, {
		name: names[3], text: "start the kubelet with a soft threshold that the disk exceeds, and a grace period of an hour before it evicts pods by rank",
		demand: func(*corev1.Pod) {},
		args: func() []string {
			return []string{"--eviction-soft=nodefs.available<99%", "--eviction-soft-grace-period=nodefs.available=1h"}
		},
		fails: podsPath,
		met: func(ctx context.Context) (string, error) {
			return l.ofNode(ctx, func(n *kube.Object) string {
				if kube.Condition(n, "DiskPressure") == "True" {
					return "the Node reports DiskPressure"
				}
				return ""
			})
		},
	}}
}

func allocatable(n *kube.Object) int64 {
	q, err := resource.ParseQuantity(kube.String(n, "status", "allocatable", "cpu"))
	if err != nil {
		return 0
	}
	return q.MilliValue()
}

// ofNode waits until is says something of the Node.
func (l *lab) ofNode(ctx context.Context, is func(*kube.Object) string) (said string, err error) {
	_, err = l.c.Client.WaitFor(ctx, kube.Nodes, "", l.node.Name, patience, "is in the state that the trial needs", func(n *kube.Object) (bool, error) {
		said = is(n)
		return said != "", nil
	})
	return said, err
}

// unknown waits until the kubelet has the pods, and then until it has rejected all, or away.
func (l *lab) unknown(ctx context.Context) (string, error) {
	if err := wait.Until(ctx, "the pods are listed", patience, func(context.Context) (bool, error) {
		return l.proxy.Lists(podsPath) > l.lists, nil
	}); err != nil {
		return "", err
	}
	since := time.Now()
	err := wait.Until(ctx, "the pods are rejected, or time passes", 2*away, func(ctx context.Context) (bool, error) {
		pods, err := l.c.Client.List(ctx, kube.Pods, ns, "")
		some := slices.ContainsFunc(pods, func(p kube.Object) bool { return rejection(&p) == "" })
		return err == nil && (!some || time.Since(since) >= away), err
	})
	return fmt.Sprintf("the Node was listed %v after the pods", time.Since(since).Round(time.Second)), err
}
