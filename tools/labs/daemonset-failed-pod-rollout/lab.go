// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemonsetfailedpodrollout has the lab of the fix daemonset-failed-pod-rollout: a
// node that refuses its pod, and the update of the others.
package daemonsetfailedpodrollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// refusing is the node that fails every pod; the others fail those of image broken.
	refusing = "node0"
	nodes    = 3
	broken   = "registry.example/agent:broken"
	// bound is how long an update may take. Three pods take about a second.
	bound = 20 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "daemonset-failed-pod-rollout",
		Folder:  "daemonset-failed-pod-rollout",
		Summary: "a DaemonSet on 3 nodes, one of which refuses its pod again and again: are the other nodes updated, and does the rollout of a broken template stop after one node",
		Needs:   labkit.ManagerNeeds(base),
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			l := &lab{e: e}
			return []labkit.Step{
				{Text: "start etcd, kube-apiserver and the controller manager under test, and three Nodes without kubelets", Do: l.start},
				{Text: "create a DaemonSet with maxUnavailable 1; its pod on node0 fails again and again", Do: l.create},
				{Text: "change the template, and wait 20 s for the two other nodes", Do: l.update},
				{Text: "change it to a template that no node can run, and count for 10 s how many nodes lose their pod", Do: l.breakIt},
				labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
			}
		},
		Oracle: labkit.Oracle{Text: []string{"both other nodes are updated, and the broken template breaks only one of them"}, Judge: judge},
	}}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	pods *kube.Recorder
}

// updated is what there was at the end of the wait: pods of the new template that node0
// failed, and other nodes that have a ready one.
type updated struct{ Failed, Nodes int }

// tookDown is what the broken template did: pods of it that were made, and other nodes
// without a ready pod, at most and at the end.
type tookDown struct{ Made, Most, Last, Gaps int }

func (l *lab) start(ctx context.Context) (err error) {
	if l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.UnderTest(base, "kube-controller-manager"),
			// Nobody reports the Nodes' health.
			ExtraArgs: []string{"--node-monitor-grace-period=1h", "--node-startup-grace-period=1h"}},
	}); err != nil {
		return err
	}
	for i := range nodes {
		name := fmt.Sprintf("node%d", i)
		if err := l.c.Client.Make(ctx, "", kube.Node(name)); err != nil {
			return err
		}
		now := time.Now().UTC().Format(time.RFC3339)
		if _, err := l.c.Client.PatchMerge(ctx, kube.Nodes, "", name, fmt.Sprintf(`{"status":{"capacity":{"pods":"110","cpu":"4","memory":"4Gi"},"allocatable":{"pods":"110","cpu":"4","memory":"4Gi"},
			"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q,"lastTransitionTime":%[1]q}]}}`, now), "status"); err != nil {
			return err
		}
	}
	return nil
}

const manifest = `apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: agent}
spec:
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: agent, image: "registry.example/agent:v1"}]
`

// kubelets start pods that are new, or fail them, every 50 ms until ctx ends.
func (l *lab) kubelets(ctx context.Context) {
	for ctx.Err() == nil {
		pods, _ := l.c.Client.List(ctx, kube.Pods, ns, "app=agent")
		for i := range pods {
			p := &pods[i]
			if kube.String(p, "status", "phase") != "Pending" {
				continue
			}
			now := time.Now().UTC().Format(time.RFC3339)
			status := map[string]any{"phase": "Running", "startTime": now, "conditions": []any{
				map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": now}}}
			if kube.String(p, "spec", "nodeName") == refusing || kube.Image(p) == broken {
				status = map[string]any{"phase": "Failed", "startTime": now, "reason": "OutOfcpu", "message": "Pod Node didn't have enough resource: cpu"}
			}
			p.Object["status"] = status
			// A pod that is gone or changed comes again in the next round.
			_, _ = l.c.Client.Resource(kube.Pods).Namespace(ns).UpdateStatus(ctx, p, metav1.UpdateOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ready is how many of the other nodes have a ready pod, of image, or of any.
func (l *lab) ready(ctx context.Context, image string) (int, error) {
	pods, err := l.c.Client.List(ctx, kube.Pods, ns, "app=agent")
	n := 0
	for i := range pods {
		if kube.Condition(&pods[i], "Ready") == "True" && strings.HasSuffix(kube.Image(&pods[i]), image) && pods[i].GetDeletionTimestamp() == nil {
			n++
		}
	}
	return n, err
}

// failed is how many pods of image node0 has failed.
func (l *lab) failed(image string) int {
	uids := map[string]bool{}
	for _, ev := range l.pods.Events() {
		if ev.Object != nil && kube.String(ev.Object, "status", "phase") == "Failed" && kube.String(ev.Object, "spec", "nodeName") == refusing && strings.HasSuffix(kube.Image(ev.Object), image) {
			uids[string(ev.Object.GetUID())] = true
		}
	}
	return len(uids)
}

func (l *lab) create(ctx context.Context) (err error) {
	if l.pods, err = l.c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	go l.kubelets(ctx)
	if _, err := l.c.Client.CreateYAML(ctx, ns, manifest); err != nil {
		return err
	}
	return wait.Until(ctx, "two nodes ready, and three pods failed on node0", time.Minute, func(ctx context.Context) (bool, error) {
		n, err := l.ready(ctx, "v1")
		return err == nil && n == nodes-1 && l.failed("v1") >= 3, err
	})
}

func (l *lab) change(ctx context.Context, image string) error {
	_, err := l.c.Client.PatchStrategic(ctx, kube.DaemonSets, ns, "agent", fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":%q}]}}}}`, image))
	return err
}

func (l *lab) update(ctx context.Context) error {
	if err := l.change(ctx, "registry.example/agent:v2"); err != nil {
		return err
	}
	var o updated
	err := wait.Until(ctx, "both other nodes updated", bound, func(ctx context.Context) (_ bool, err error) {
		o.Nodes, err = l.ready(ctx, "v2")
		o.Failed = l.failed("v2")
		return o.Nodes == nodes-1 && o.Failed >= 3, err
	})
	if ctx.Err() != nil {
		return err
	}
	l.e.Step("%d of 2 other nodes are updated; %d pods of the new template failed on node0", o.Nodes, o.Failed)
	l.e.Record(o)
	return nil
}

func (l *lab) breakIt(ctx context.Context) error {
	if err := l.change(ctx, broken); err != nil {
		return err
	}
	var o tookDown
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		n, err := l.ready(ctx, "")
		if err != nil {
			return err
		}
		o.Last = nodes - 1 - n
		o.Most = max(o.Most, o.Last)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	for _, ev := range l.pods.Events() {
		if ev.Type == "ADDED" && kube.Image(ev.Object) == broken {
			o.Made++
		}
	}
	o.Gaps = l.pods.Gaps()
	l.e.Step("%d pods of the broken template were created; %d of 2 other nodes have no ready pod, allowed are %d", o.Made, o.Last, o.Most)
	l.e.Record(o)
	return nil
}

func judge(h *history.History) labkit.Outcome {
	u, d := history.One[updated](h), history.One[tookDown](h)
	switch {
	case u.Failed < 3 || d.Made < 3 || d.Gaps > 0:
		return labkit.InconclusiveBecause("%d pods of the new template failed on node0, and %d of the broken template were created; the watch has %d gaps", u.Failed, d.Made, d.Gaps)
	case d.Most > 1:
		return labkit.ReproducedBecause("a template that no node can run broke %d nodes, with maxUnavailable 1", d.Most)
	case u.Nodes < nodes-1:
		return labkit.ReproducedBecause("node0 refuses its pod, and only %d of 2 other nodes are updated", u.Nodes)
	case d.Last != 1:
		return labkit.InconclusiveBecause("the broken template broke %d nodes", d.Last)
	}
	return labkit.AbsentBecause("both other nodes are updated while node0 refuses its pod, and a template that no node can run broke 1 node")
}
