// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// updateReadyCondition makes the pod's Ready condition that of its containers.
func updateReadyCondition(pod *v1.Pod, status *v1.PodStatus) {
	ready := GeneratePodReadyCondition(&pod.Spec, status.ContainerStatuses, status.Phase)
	if i, _ := podutil.GetPodCondition(status, v1.PodReady); i >= 0 {
		status.Conditions[i] = ready
	} else {
		status.Conditions = append(status.Conditions, ready)
	}
}
