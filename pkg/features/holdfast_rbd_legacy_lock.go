// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// RBDLegacyLock takes the advisory lock of kubelets up to 1.8 before an image is mapped
// for writing, so that they see it. For clusters with such kubelets. Off: no lock is
// taken, as stock; a lock that was taken is still released.
const RBDLegacyLock utilfeature.Feature = "RBDLegacyLock"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		RBDLegacyLock: {Default: false, PreRelease: utilfeature.Alpha},
	}); err != nil {
		panic(err)
	}
}
