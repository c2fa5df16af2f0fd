// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costatscale

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const container = "web"

func deploymentName(i int) string { return fmt.Sprintf("web-%02d", i) }

// image is of no registry: hollow nodes pull nothing.
func image(i int) string { return fmt.Sprintf("registry.example/web:v%d", i+1) }

func deployment(name string, replicas int32, image string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// A hollow node really mounts the token's volume.
					AutomountServiceAccountToken: new(false),
					// Else each pod of each hollow node has the address 2.3.4.5, and a
					// kube-apiserver refuses Endpoints with an address that moves to
					// another node.
					HostNetwork: true,
					Containers:  []corev1.Container{{Name: container, Image: image}},
				},
			},
		},
	}
}

// rolledOut says what a Deployment lacks.
func rolledOut(d *kube.Object) error {
	want, seen := d.GetGeneration(), kube.Int(d, "status", "observedGeneration")
	if seen < want {
		return fmt.Errorf("Deployment %s has generation %d, its controller has observed %d", d.GetName(), want, seen)
	}
	replicas := kube.Int(d, "spec", "replicas")
	for _, field := range []string{"replicas", "updatedReplicas", "availableReplicas"} {
		if n := kube.Int(d, "status", field); n != replicas {
			return fmt.Errorf("Deployment %s has %d %s of %d", d.GetName(), n, field, replicas)
		}
	}
	return nil
}

// waitRolledOut waits until the controller says so of all Deployments.
func (l *lab) waitRolledOut(ctx context.Context) (time.Time, error) {
	err := wait.Every(ctx, "rollout of all Deployments", time.Second, l.bound, func(ctx context.Context) (bool, error) {
		list, err := l.c.Client.List(ctx, kube.Deployments, ns, "")
		if err != nil {
			return false, err
		}
		if len(list) != l.deployments {
			return false, fmt.Errorf("there are %d Deployments", len(list))
		}
		for i := range list {
			if err := rolledOut(&list[i]); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	return time.Now(), err
}

// waitSettled waits until there are no other pods than those of the newest image, and all
// of them are in the Endpoints.
func (l *lab) waitSettled(ctx context.Context) (time.Time, error) {
	err := wait.Every(ctx, "the end of all old pods", 2*time.Second, l.bound, func(ctx context.Context) (bool, error) {
		eps, err := l.c.Client.List(ctx, kube.Endpoints, ns, "")
		if err != nil {
			return false, err
		}
		pods, err := l.c.Client.List(ctx, kube.Pods, ns, "")
		if err != nil {
			return false, err
		}
		return true, l.unsettled(pods, eps)
	})
	return time.Now(), err
}

// unsettled says what is not as it is at rest.
func (l *lab) unsettled(pods, endpoints []kube.Object) error {
	if len(pods) != l.pods() {
		return fmt.Errorf("there are %d pods, want %d", len(pods), l.pods())
	}
	of := map[string][]string{}
	for i := range pods {
		p := &pods[i]
		cs := kube.Slice(p, "spec", "containers")
		if c, ok := cs[0].(map[string]any); !ok || c["image"] != image(l.image) || p.GetDeletionTimestamp() != nil || !kubeletlab.PodReady(p) {
			return fmt.Errorf("pod %s is an old one, or not ready", p.GetName())
		}
		app := p.GetLabels()["app"]
		of[app] = append(of[app], p.GetName())
	}
	seen := 0
	for i := range endpoints {
		name := endpoints[i].GetName()
		if len(of[name]) == 0 {
			continue // of the Service kubernetes
		}
		seen++
		got := kubeletlab.ReadyPods(&endpoints[i])
		slices.Sort(got)
		slices.Sort(of[name])
		if !slices.Equal(got, of[name]) {
			return fmt.Errorf("Endpoints %s have %d of %d pods", name, len(got), len(of[name]))
		}
	}
	if seen != l.deployments {
		return fmt.Errorf("there are Endpoints of %d Services, want %d", seen, l.deployments)
	}
	return nil
}
