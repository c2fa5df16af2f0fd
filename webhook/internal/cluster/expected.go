// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"holdfast/webhook/internal/names"
)

// selects reports whether a Service selects a pod; one without a selector, whose
// Endpoints are not the endpoints controller's, selects none.
func selects(s *v1.Service, p *v1.Pod) bool {
	return s.Namespace == p.Namespace && len(s.Spec.Selector) > 0 && labels.Set(s.Spec.Selector).AsSelectorPreValidated().Matches(labels.Set(p.Labels))
}

// expected reports whether the endpoints controller of 1.9 makes an address for a
// pod that a Service selects (syncService in pkg/controller/endpoint).
func expected(s *v1.Service, p *v1.Pod) bool {
	if p.Status.PodIP == "" || p.DeletionTimestamp != nil || !podReady(p) && over(p) {
		return false
	}
	if len(s.Spec.Ports) == 0 {
		return s.Spec.ClusterIP == v1.ClusterIPNone
	}
	for i := range s.Spec.Ports {
		if hasPort(p, &s.Spec.Ports[i]) {
			return true
		}
	}
	return false
}

// over reports whether a pod's containers have ended for good. One that is not ready
// then has no address at all (shouldPodBeInEndpoints).
func over(p *v1.Pod) bool {
	switch p.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
	case v1.RestartPolicyOnFailure:
		return p.Status.Phase == v1.PodSucceeded
	}
	return false
}

// hasPort: a port by number is there, one by name if a container has it.
func hasPort(p *v1.Pod, sp *v1.ServicePort) bool {
	if sp.TargetPort.Type == intstr.Int {
		return true
	}
	name := sp.TargetPort.StrVal
	for i := range p.Spec.Containers {
		for _, cp := range p.Spec.Containers[i].Ports {
			if cp.Name == name && (cp.Protocol == sp.Protocol || cp.Protocol == "" && sp.Protocol == v1.ProtocolTCP) {
				return true
			}
		}
	}
	return false
}

// exempt is why a Service's Endpoints are left as the controller makes them.
func exempt(s *v1.Service) string {
	tolerate, err := strconv.ParseBool(s.Annotations[names.TolerateUnready])
	switch {
	case s.Namespace == v1.NamespaceDefault && s.Name == "kubernetes":
		return "the API server's own"
	case len(s.Spec.Selector) == 0:
		return "its Service has no selector"
	case s.Spec.PublishNotReadyAddresses:
		return "its Service has publishNotReadyAddresses"
	case err == nil && tolerate:
		return "its Service has the annotation " + names.TolerateUnready
	}
	return ""
}
