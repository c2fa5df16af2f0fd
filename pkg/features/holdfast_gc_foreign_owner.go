// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// GCForeignOwnerCheck makes the garbage collector believe that an owner is gone only for
// those dependents whose own reference leads nowhere. Off: an object that names the UID
// of an owner in another namespace has that owner's dependents deleted (#65200).
const GCForeignOwnerCheck utilfeature.Feature = "GCForeignOwnerCheck"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		GCForeignOwnerCheck: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
