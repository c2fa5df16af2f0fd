// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/v1alpha1/runtime"

func runPodSandbox(ds *dockerService, config *runtimeapi.PodSandboxConfig) error {
	_, err := ds.RunPodSandbox(config)
	return err
}
