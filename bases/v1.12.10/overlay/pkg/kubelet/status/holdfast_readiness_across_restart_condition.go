// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// updateReadyCondition makes the pod's conditions Ready and ContainersReady those of its containers.
func updateReadyCondition(pod *v1.Pod, status *v1.PodStatus) {
	for _, c := range []v1.PodCondition{
		GeneratePodReadyCondition(&pod.Spec, status.Conditions, status.ContainerStatuses, status.Phase),
		GenerateContainersReadyCondition(&pod.Spec, status.ContainerStatuses, status.Phase),
	} {
		if i, _ := podutil.GetPodCondition(status, c.Type); i >= 0 {
			status.Conditions[i] = c
		} else {
			status.Conditions = append(status.Conditions, c)
		}
	}
}
