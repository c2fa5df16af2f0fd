// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

// countEtcHosts tells statistics and evictions where the pods' /etc/hosts are.
func (kl *Kubelet) countEtcHosts() {
	etchosts.SetPodDir(kl.getPodDir)
}
