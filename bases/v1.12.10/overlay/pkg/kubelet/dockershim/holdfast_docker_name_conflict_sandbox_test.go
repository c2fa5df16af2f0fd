// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"context"

	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/runtime/v1alpha2"
)

func runPodSandbox(ds *dockerService, config *runtimeapi.PodSandboxConfig) error {
	_, err := ds.RunPodSandbox(context.Background(), &runtimeapi.RunPodSandboxRequest{Config: config})
	return err
}
