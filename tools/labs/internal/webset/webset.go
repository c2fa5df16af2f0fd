// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webset is what labs share that change the pods of one Service at once: the
// Service, its pods, and what a watcher of its Endpoints sees.
package webset

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	// NS is the namespace of all of it.
	NS = "default"
	// Service is the name of the Service, its Endpoints, the label app of its pods
	// and their container.
	Service = "web"
	// Pods is how many pods there are.
	Pods = 20
)

// Name is that of the i-th pod, from 0 on.
func Name(i int) string { return fmt.Sprintf("web-%02d", i) }

// Set is a Service with its pods.
type Set struct {
	Client *kube.Client
	// Endpoints has every version since before the Service was created.
	Endpoints *kube.Recorder
}

// Create makes the Service and then its pods, of which pod gives all but name, label
// and the name of the container.
func Create(ctx context.Context, c *kube.Client, pod func(i int) *corev1.Pod) (*Set, error) {
	s := &Set{Client: c}
	var err error
	if s.Endpoints, err = c.Record(ctx, kube.Endpoints, NS); err != nil {
		return nil, err
	}
	if err := c.Make(ctx, NS, kube.Service(Service, Service, 8080)); err != nil {
		return nil, err
	}
	for i := range Pods {
		if err := s.Make(ctx, i, pod(i)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Make creates the i-th pod, to which it gives name and label.
func (s *Set) Make(ctx context.Context, i int, pod *corev1.Pod) error {
	pod.Name, pod.Labels, pod.Spec.Containers[0].Name = Name(i), map[string]string{"app": Service}, Service
	return s.Client.Make(ctx, NS, pod)
}

// Object is a pod of the Service that is an API object only: its node does not exist.
func Object(image string) *corev1.Pod {
	p := kube.Pod("")
	p.Spec = corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}
	return p
}

// IP is the address that Publish gives to the i-th pod.
func IP(i int) string { return fmt.Sprintf("10.91.1.%d", i+1) }

// Publish does what a kubelet does that publishes a pod's readiness.
func (s *Set) Publish(ctx context.Context, i int, ready bool) error {
	return PublishReady(ctx, s.Client, NS, Name(i), IP(i), ready)
}

// PublishReady is Publish for any pod. With the address "" the pod keeps the one that it has.
func PublishReady(ctx context.Context, c *kube.Client, ns, pod, ip string, ready bool) error {
	running := ""
	if ip != "" {
		running = fmt.Sprintf(`"phase":"Running","podIP":%q,`, ip)
	}
	status := map[bool]string{true: "True", false: "False"}[ready]
	_, err := c.PatchStrategic(ctx, kube.Pods, ns, pod, fmt.Sprintf(`{"status":{%s"conditions":[{"type":"Ready","status":%q}]}}`, running, status), "status")
	return err
}

// MakeReady makes a pod of an app that is an API object only, on a node that need not exist, and
// publishes it as ready with that address.
func MakeReady(ctx context.Context, c *kube.Client, ns, name, app, node, ip string) error {
	p := Object("none")
	p.Name, p.Labels, p.Spec.NodeName, p.Spec.Containers[0].Name = name, map[string]string{"app": app}, node, Service
	if err := c.Make(ctx, ns, p); err != nil {
		return err
	}
	return PublishReady(ctx, c, ns, name, ip, true)
}

// StartBehindProxy starts etcd, kube-apiserver of base as upstream has it, a proxy before it, and
// behind the proxy the kube-controller-manager under test, without the controllers that would miss
// the pods' nodes. Pods can be made then.
func StartBehindProxy(ctx context.Context, e *labkit.Env, base string) (*node.Cluster, *kube.Proxy, error) {
	c, proxy, err := e.StartProxied(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	c.ControllerManager, err = e.StartControllerManager(ctx, proxy.Before(c.APIServer), kube.ControllerManagerConfig{
		Program:   e.UnderTest(base, "kube-controller-manager"),
		ExtraArgs: []string{"--controllers=*,-podgc,-node", "--leader-elect=false"}})
	if err != nil {
		return nil, nil, err
	}
	return c, proxy, c.Client.WaitPodsAdmitted(ctx, NS, 90*time.Second)
}

// SetImage changes the image of a pod in place.
func (s *Set) SetImage(ctx context.Context, pod, image string) error {
	_, err := s.Client.PatchStrategic(ctx, kube.Pods, NS, pod, fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, Service, image))
	return err
}

// Ready is how many addresses of the Service are ready, as a watcher knows it.
func (s *Set) Ready() int {
	ep := s.Endpoints.Latest(NS, Service)
	if ep == nil {
		return 0
	}
	return len(kube.ReadyAddresses(ep))
}

// WaitReady waits until just n addresses are ready.
func (s *Set) WaitReady(ctx context.Context, n int, bound time.Duration) error {
	return wait.Until(ctx, fmt.Sprintf("%d ready addresses", n), bound, func(context.Context) (bool, error) {
		if got := s.Ready(); got != n {
			return false, fmt.Errorf("%d are", got)
		}
		return true, nil
	})
}

// Versions are the Endpoints as a watcher saw them, oldest first.
func (s *Set) Versions() []kube.RecordedEvent { return s.Endpoints.Of(NS, Service) }
