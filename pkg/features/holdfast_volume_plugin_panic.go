// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// VolumePluginPanicRecovery makes a volume plugin's panic the error of the one volume
// that it is about. Off: it ends the round of the reconciler, and with it the mounts of
// other pods.
const VolumePluginPanicRecovery utilfeature.Feature = "VolumePluginPanicRecovery"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		VolumePluginPanicRecovery: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
