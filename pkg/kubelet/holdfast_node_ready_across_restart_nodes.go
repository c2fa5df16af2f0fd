// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import v1core "k8s.io/client-go/kubernetes/typed/core/v1"

func (kl *Kubelet) heartbeatNodes() v1core.NodeInterface { return kl.heartbeatClient.Nodes() }
