// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Make creates typed objects, which must name their kind, as those of the makers below
// and of package node do. Objects without a namespace get ns. What a type of today has
// and the server does not know is ignored by the server, so set no such field.
func (c *Client) Make(ctx context.Context, ns string, objects ...runtime.Object) error {
	for _, typed := range objects {
		o, err := Untyped(typed)
		if err != nil {
			return err
		}
		r, err := ResourceFor(o.GetAPIVersion(), o.GetKind())
		if err != nil {
			return err
		}
		in := o.GetNamespace()
		if in == "" && !clusterScoped[o.GetKind()] {
			in = ns
		}
		if _, err := c.Create(ctx, r, in, o); err != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Untyped is a typed object as the client sends it: without a status.
func Untyped(typed runtime.Object) (*Object, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("%T: %w", typed, err)
	}
	delete(m, "status")
	o := &Object{Object: m}
	if o.GetKind() == "" || o.GetAPIVersion() == "" {
		return nil, fmt.Errorf("a %T names no kind: set its TypeMeta, or use one of the kit's functions", typed)
	}
	return o, nil
}

// Pod is a pod without containers; package node has one that runs.
func Pod(name string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Image is that of a pod's first container; "" without one.
func Image(pod *Object) string {
	for _, c := range Slice(pod, "spec", "containers") {
		m, _ := c.(map[string]any)
		image, _ := m["image"].(string)
		return image
	}
	return ""
}

// Node is a node that no kubelet reports.
func Node(name string) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// PendingReplicaSet asks for n pods with the label app, its name. Where there is no node they stay
// pending.
func PendingReplicaSet(name string, n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/none"}}},
		}},
	}
}

// Service selects the pods with the label app and has port 80 for their port target.
func Service(name, app string, target int) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(int32(target))}},
		},
	}
}

// Secret has data that is no secret.
func Secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
}

// ConfigMap has data.
func ConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// Namespace is an empty one.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// HTTPGet asks a port of the pod's address for a path.
func HTTPGet(path string, port int) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port))}}
}

// Exec runs a command in the container.
func Exec(command ...string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}
}

// TCP opens a port of the pod's address.
func TCP(port int) corev1.ProbeHandler {
	return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
}
