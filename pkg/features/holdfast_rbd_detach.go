// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// RBDRobustDetach makes the detach of an RBD volume repeatable: the device is found by
// its pool and image when it is no longer mounted, a failed mount is unmapped, the
// volume of a pod that went while no kubelet ran is reconstructed. Off: as stock.
const RBDRobustDetach utilfeature.Feature = "RBDRobustDetach"

// RBDDetachLeftovers detaches, once after the kubelet's start, what an earlier kubelet
// left mapped. It needs RBDRobustDetach. Off by default, as it takes an image that
// was mapped by hand for such a leftover. Off: leftovers are reported only.
const RBDDetachLeftovers utilfeature.Feature = "RBDDetachLeftovers"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		RBDRobustDetach:    {Default: true, PreRelease: utilfeature.Beta},
		RBDDetachLeftovers: {Default: false, PreRelease: utilfeature.Alpha},
	}); err != nil {
		panic(err)
	}
}
