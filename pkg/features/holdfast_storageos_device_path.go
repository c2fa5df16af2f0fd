// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// StorageOSDevicePathCheck refuses a volume ID of a StorageOS server that is no plain
// file name. Off: the ID is joined into a path of the node, which is mounted.
const StorageOSDevicePathCheck utilfeature.Feature = "StorageOSDevicePathCheck"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		StorageOSDevicePathCheck: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
