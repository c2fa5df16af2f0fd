// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
)

// countEtcHosts tells statistics and evictions where the pods' /etc/hosts are.
func (kl *Kubelet) countEtcHosts() {
	etchosts.SetPodDir(kl.getPodDir)
}

// freeingEtcHosts is kill, the eviction manager's, that also frees what an evicted pod has
// in its /etc/hosts. kill returns when the pod's containers have ended.
func freeingEtcHosts(kill eviction.KillPodFunc) eviction.KillPodFunc {
	return func(pod *v1.Pod, status v1.PodStatus, gracePeriodOverride *int64) error {
		err := kill(pod, status, gracePeriodOverride)
		if err == nil {
			etchosts.Evicted(pod.UID)
		}
		return err
	}
}
