// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	clientset "k8s.io/client-go/kubernetes"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
)

// heartbeatClient is what the kubelet writes its Node with.
type heartbeatClient = clientset.Interface

func nodesOf(client heartbeatClient) v1core.NodesGetter { return client.CoreV1() }
