// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

func newHeartbeatClient(config *rest.Config) (heartbeatClient, error) {
	return v1core.NewForConfig(config)
}
