// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/webhook/internal/names"
	"holdfast/webhook/internal/rules"
)

// objects are what one address is judged by. endpoints, node and namespace may be nil.
type objects struct {
	pod       *v1.Pod
	service   *v1.Service
	endpoints *v1.Endpoints
	node      *v1.Node
	namespace *v1.Namespace
	// pending are the containers whose image is, with since when.
	pending map[string]time.Time
}

func metaOf(o metav1.Object) rules.Meta {
	return rules.Meta{Name: o.GetName(), Namespace: o.GetNamespace(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(), Created: rules.At(o.GetCreationTimestamp().Time)}
}

// env is what the rules see.
func (o *objects) env() *rules.Env {
	e := &rules.Env{Pod: o.envPod()}
	p := o.pod
	e.Address = rules.Address{IP: p.Status.PodIP, NodeName: p.Spec.NodeName, Ready: podReady(p)}
	if p.Spec.Hostname != "" && p.Spec.Subdomain == o.service.Name {
		e.Address.Hostname = p.Spec.Hostname
	}
	e.Service = rules.Service{Meta: metaOf(o.service), Type: string(o.service.Spec.Type), Headless: o.service.Spec.ClusterIP == v1.ClusterIPNone}
	e.Endpoints = rules.Meta{Name: o.service.Name, Namespace: o.service.Namespace}
	if o.endpoints != nil {
		e.Endpoints = metaOf(o.endpoints)
		if _, ours := e.Endpoints.Annotations[names.Rules]; ours { // what the program writes is no reason for anything
			m := map[string]string{}
			for k, v := range e.Endpoints.Annotations {
				if k != names.Rules {
					m[k] = v
				}
			}
			e.Endpoints.Annotations = m
		}
	}
	if o.namespace != nil {
		e.Namespace = metaOf(o.namespace)
	}
	if n := o.node; n != nil {
		e.Node = rules.Node{Meta: metaOf(n), Known: true, Unschedulable: n.Spec.Unschedulable}
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
				e.Node.Ready, e.Node.ReadySince = c.Status == v1.ConditionTrue, rules.At(c.LastTransitionTime.Time)
			}
		}
	}
	return e
}

func (o *objects) envPod() rules.Pod {
	p := o.pod
	out := rules.Pod{Meta: metaOf(p), IP: p.Status.PodIP, NodeName: p.Spec.NodeName, Phase: string(p.Status.Phase), HostNetwork: p.Spec.HostNetwork,
		Deleting: p.DeletionTimestamp != nil, Ready: podReady(p), Containers: make([]rules.Container, len(p.Spec.Containers))}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			out.ReadySince = rules.At(c.LastTransitionTime.Time)
		}
	}
	for i := range p.OwnerReferences {
		if r := &p.OwnerReferences[i]; r.Controller != nil && *r.Controller {
			out.Owner = rules.Owner{Kind: r.Kind, Name: r.Name}
		}
	}
	var latest time.Time
	for i := range p.Spec.Containers {
		c := &out.Containers[i]
		c.Name, c.Image = p.Spec.Containers[i].Name, p.Spec.Containers[i].Image
		if since, ok := o.pending[c.Name]; ok {
			c.ImagePending, out.ImagePending = true, true
			if since.After(latest) {
				latest = since
			}
		}
		for j := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[j]; s.Name == c.Name {
				c.Ready, c.Restarts = s.Ready, int(s.RestartCount)
				if s.State.Running != nil {
					c.Running, c.Started = true, rules.At(s.State.Running.StartedAt.Time)
				}
			}
		}
	}
	out.ImageChanged = rules.At(latest)
	return out
}
