// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package testing

import (
	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober"
)

// Unused methods.
func (_ FakeManager) StartKeepingReadiness(prober.ReadinessSources)       {}
func (_ FakeManager) KeepReadiness(_ *v1.Pod, _ *kubecontainer.PodStatus) {}
