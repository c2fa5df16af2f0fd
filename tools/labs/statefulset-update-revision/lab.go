// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefulsetupdaterevision has the lab of the fix statefulset-update-revision: pods
// that a rollout makes with the revision that it deletes them for.
package statefulsetupdaterevision

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base     = "v1.9.11"
	ns       = "default"
	replicas = 8
	rollouts = 14
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "statefulset-update-revision",
		Folder:  "statefulset-update-revision",
		Summary: "14 rollouts of a StatefulSet of 8 pods that end at once when they are deleted: how many superfluous pods are created",
		Needs:   labkit.ManagerNeeds(base),
		Test:    []labkit.Variant{labkit.Ours},
		Timeout: func(labkit.Profile) time.Duration { return 15 * time.Minute },
		Steps: func(e *labkit.Env) []labkit.Step {
			l := &lab{e: e}
			return []labkit.Step{
				{Text: "start etcd, kube-apiserver and the controller manager under test", Do: l.start},
				{Text: "create a StatefulSet of 8 pods with RollingUpdate and no partition; its pods are ready, and end, at once", Do: l.create},
				{Text: "change its template 14 times, each time after the previous rollout has finished, and count the created pods", Do: l.roll},
				labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
			}
		},
		Oracle: labkit.Oracle{Text: []string{"each rollout creates 8 pods"}, Judge: judge},
	}}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	pods *kube.Recorder
}

// rolled is a rollout that is over: how many pods were made in it, and how many of them with
// the template before.
type rolled struct{ Made, Old, Gaps int }

func (l *lab) start(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.UnderTest(base, "kube-controller-manager")},
	})
	return err
}

const manifest = `apiVersion: apps/v1beta1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: %d
  serviceName: db
  updateStrategy: {type: RollingUpdate}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: db, image: "registry.example/db:0"}]
`

func image(n int) string { return fmt.Sprintf("registry.example/db:%d", n) }

// over waits until all pods have image n, are ready, and the status says that the rollout is
// over.
func (l *lab) over(ctx context.Context, n int) error {
	return wait.Until(ctx, fmt.Sprintf("rollout %d over", n), 2*time.Minute, func(ctx context.Context) (bool, error) {
		pods, err := l.c.Client.List(ctx, kube.Pods, ns, "app=db")
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range pods {
			if kube.Image(&pods[i]) == image(n) && kube.Condition(&pods[i], "Ready") == "True" {
				ready++
			}
		}
		if ready != replicas || len(pods) != replicas {
			return false, fmt.Errorf("%d of %d pods have it and are ready", ready, len(pods))
		}
		set, err := l.c.Client.Get(ctx, kube.StatefulSets, ns, "db")
		if err != nil {
			return false, err
		}
		status := func(field string) string { return kube.String(set, "status", field) }
		return status("currentRevision") == status("updateRevision") && kube.Int(set, "status", "currentReplicas") == replicas &&
			kube.Int(set, "status", "observedGeneration") == set.GetGeneration(), nil
	})
}

func (l *lab) create(ctx context.Context) (err error) {
	// No node has the pods, so they end as soon as they are deleted.
	kube.StartFakeNodes(ctx, l.c.Client)
	if l.pods, err = l.c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(manifest, replicas)); err != nil {
		return err
	}
	return l.over(ctx, 0)
}

func (l *lab) roll(ctx context.Context) error {
	for n := 1; n <= rollouts; n++ {
		before := len(l.pods.Events())
		if _, err := l.c.Client.PatchStrategic(ctx, kube.StatefulSets, ns, "db",
			fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"db","image":%q}]}}}}`, image(n))); err != nil {
			return err
		}
		if err := l.over(ctx, n); err != nil {
			return err
		}
		// The list of over may be ahead of the watch.
		if _, err := l.pods.Wait(ctx, 30*time.Second, "the watch has the last pod", func(ev kube.RecordedEvent) bool {
			return ev.Object != nil && ev.Object.GetName() == "db-0" && kube.Image(ev.Object) == image(n) && kube.Condition(ev.Object, "Ready") == "True"
		}); err != nil {
			return err
		}
		r := rolled{Gaps: l.pods.Gaps()}
		for _, ev := range l.pods.Events()[before:] {
			if ev.Type != "ADDED" {
				continue
			}
			if r.Made++; kube.Image(ev.Object) != image(n) {
				r.Old++
			}
		}
		l.e.Step("rollout %d: %d pods created, %d of them with the previous template", n, r.Made, r.Old)
		l.e.Record(r)
	}
	return nil
}

func judge(h *history.History) labkit.Outcome {
	var made, old, n int
	for _, r := range history.Of[rolled](h) {
		if r.Gaps > 0 || r.Made < replicas {
			return labkit.InconclusiveBecause("%d pods were recorded in a rollout, and the watch has %d gaps", r.Made, r.Gaps)
		}
		n, made, old = n+1, made+r.Made, old+r.Old
	}
	var res labkit.Outcome
	switch extra := made - n*replicas; {
	case n != rollouts:
		return labkit.InconclusiveBecause("%d rollouts, want %d", n, rollouts)
	case extra > 0:
		res = labkit.ReproducedBecause("%d superfluous pods in %d rollouts of %d, %d of them with the previous template", extra, n, replicas, old)
	default:
		res = labkit.AbsentBecause("each of %d rollouts of %d created %d pods", n, replicas, replicas)
	}
	res.Measure("pods too many", float64(made-n*replicas), "")
	return res
}
