// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import v1core "k8s.io/client-go/kubernetes/typed/core/v1"

// heartbeatClient is what the kubelet writes its Node with.
type heartbeatClient = v1core.CoreV1Interface

func nodesOf(client heartbeatClient) v1core.NodesGetter { return client }
