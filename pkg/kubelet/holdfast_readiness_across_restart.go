// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober"
)

// keepReadiness lets the prober see the pod as it was published and as it runs,
// before the prober is asked for the readiness.
func (kl *Kubelet) keepReadiness(pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	prober.KeepReadiness(kl.probeManager, kl.containerRuntime, kl.podManager, pod, podStatus)
}
