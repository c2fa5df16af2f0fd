// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func newHeartbeatClient(config *rest.Config) (heartbeatClient, error) {
	return clientset.NewForConfig(config)
}
