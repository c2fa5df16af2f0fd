// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// ContainersToStop says which of the pod's containers SyncPod, called now, would
// stop. It is SyncPod's own decision, so that the two cannot disagree.
func (m *kubeGenericRuntimeManager) ContainersToStop(pod *v1.Pod, podStatus *kubecontainer.PodStatus) func(kubecontainer.ContainerID) bool {
	actions := m.computePodActions(pod, podStatus)
	return func(id kubecontainer.ContainerID) bool {
		_, kill := actions.ContainersToKill[id]
		return kill || actions.KillPod
	}
}
