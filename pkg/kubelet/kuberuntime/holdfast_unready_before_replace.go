// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/util/format"
)

// ReplacementPreparer is a RuntimeHelper that wants to know of running containers that
// are about to be replaced because their spec changed.
type ReplacementPreparer interface {
	// PrepareReplacement makes the containers not ready, and returns whether they may
	// be killed now. If block is set it waits for that, but not longer than there is
	// nothing newer to be known about the pod: false with block means that the pod is
	// to be synced again. Without block false means: later.
	PrepareReplacement(pod *v1.Pod, replaced []ReplacedContainer, block bool) bool
	// ReplaceAtOnce returns whether the container is to be replaced without that, and
	// without waiting for others of its pod.
	ReplaceAtOnce(pod *v1.Pod, replaced ReplacedContainer) bool
}

func init() {
	preparedToStop = func(m *kubeGenericRuntimeManager, pod *v1.Pod, podStatus *kubecontainer.PodStatus, actions *podActions) []ReplacedContainer {
		preparer, _ := m.runtimeHelper.(ReplacementPreparer)
		return m.replacedContainers(preparer, pod, podStatus, actions)
	}
}

// prepareReplacement is called when SyncPod has decided what to kill, after all that
// can keep the pod from running was done, and before the first container is killed. It
// returns false if nothing may be killed and SyncPod has to end.
//
// What else is to be done for the pod does not wait for it: if there is something to
// kill or to start beside the replaced containers, this sync does that, and a later one
// replaces them.
func (m *kubeGenericRuntimeManager) prepareReplacement(pod *v1.Pod, podStatus *kubecontainer.PodStatus, changes *podActions) bool {
	preparer, _ := m.runtimeHelper.(ReplacementPreparer)
	replaced := m.replacedContainers(preparer, pod, podStatus, changes)
	if len(replaced) == 0 {
		return true
	}
	isReplaced := map[string]bool{}
	for _, r := range replaced {
		isReplaced[r.Name] = true
	}
	var others []int
	for _, idx := range changes.ContainersToStart {
		if !isReplaced[pod.Spec.Containers[idx].Name] {
			others = append(others, idx)
		}
	}
	block := len(others) == 0 && len(replaced) == len(changes.ContainersToKill)
	if preparer.PrepareReplacement(pod, replaced, block) {
		return true
	}
	if block {
		return false
	}
	glog.V(3).Infof("Pod %q has other containers to kill or to start before %d are replaced", format.Pod(pod), len(replaced))
	for _, r := range replaced {
		delete(changes.ContainersToKill, r.ID)
	}
	changes.ContainersToStart = others
	return true
}

// replacedContainers are those that preparer, nil if there is none, is to make not ready
// before they are killed.
func (m *kubeGenericRuntimeManager) replacedContainers(preparer ReplacementPreparer, pod *v1.Pod, podStatus *kubecontainer.PodStatus, changes *podActions) []ReplacedContainer {
	if preparer == nil || len(changes.ContainersToKill) == 0 || changes.KillPod || !utilfeature.DefaultFeatureGate.Enabled(features.UnreadyBeforeReplace) {
		return nil
	}
	var replaced []ReplacedContainer
	for id, info := range changes.ContainersToKill {
		status := podStatus.FindContainerStatusByName(info.name)
		if status == nil || status.ID != id || info.container == nil {
			continue
		}
		if liveness, found := m.livenessManager.Get(id); found && liveness == proberesults.Failure {
			continue // it has to go at once, whatever its spec
		}
		if _, _, changed := containerChanged(info.container, status); !changed {
			continue
		}
		if r := (ReplacedContainer{ID: id, Name: info.name}); !preparer.ReplaceAtOnce(pod, r) {
			replaced = append(replaced, r)
		}
	}
	return replaced
}

// ContainersChanged says which of the pod's running containers have another spec than
// the one they were started from. It is SyncPod's own decision.
func (m *kubeGenericRuntimeManager) ContainersChanged(pod *v1.Pod, podStatus *kubecontainer.PodStatus) []ReplacedContainer {
	var changed []ReplacedContainer
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		status := podStatus.FindContainerStatusByName(container.Name)
		if status == nil || status.State != kubecontainer.ContainerStateRunning {
			continue
		}
		if _, _, differs := containerChanged(container, status); differs {
			changed = append(changed, ReplacedContainer{ID: status.ID, Name: container.Name})
		}
	}
	return changed
}
