// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// preparedToStop says which containers SyncPod makes not ready itself before it stops
// them: what is published of such a container stands until then. It is nil if SyncPod
// does so with none.
var preparedToStop func(m *kubeGenericRuntimeManager, pod *v1.Pod, podStatus *kubecontainer.PodStatus, actions *podActions) []ReplacedContainer

// ReplacedContainer is a running container that is to be replaced.
type ReplacedContainer struct {
	ID   kubecontainer.ContainerID
	Name string
}

// ContainersToStop says which of the pod's containers SyncPod, called now, would
// stop, but for those that it makes not ready first. It is SyncPod's own decision, so
// that the two cannot disagree.
func (m *kubeGenericRuntimeManager) ContainersToStop(pod *v1.Pod, podStatus *kubecontainer.PodStatus) func(kubecontainer.ContainerID) bool {
	actions := m.computePodActions(pod, podStatus)
	prepared := map[kubecontainer.ContainerID]bool{}
	if preparedToStop != nil {
		for _, r := range preparedToStop(m, pod, podStatus, &actions) {
			prepared[r.ID] = true
		}
	}
	return func(id kubecontainer.ContainerID) bool {
		_, kill := actions.ContainersToKill[id]
		return kill && !prepared[id] || actions.KillPod
	}
}
