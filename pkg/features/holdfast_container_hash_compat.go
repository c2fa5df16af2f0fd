// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// ContainerHashCompat makes the kubelet keep a running container whose
	// recorded hash is the one that a 1.8, 1.7 or 1.6 kubelet computes for the
	// same spec. Off: such a container is killed and recreated, as upstream.
	ContainerHashCompat utilfeature.Feature = "ContainerHashCompat"

	// LegacyContainerHashWrite makes the kubelet record for a new container
	// the hash of the kubelet that was here before (package predecessor), or of
	// the oldest release after it that knows every field the container sets, so
	// that a kubelet rolled back keeps it. Off: the hash of this release, which
	// a stock kubelet keeps.
	LegacyContainerHashWrite utilfeature.Feature = "LegacyContainerHashWrite"
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		ContainerHashCompat:      {Default: true, PreRelease: utilfeature.Beta},
		LegacyContainerHashWrite: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
