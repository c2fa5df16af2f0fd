// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// UnreadyBeforeReplace makes a running container not ready, and waits until the API
// server has that, before the container is killed because its spec changed. Off: it is
// killed first, and whether the pod is seen not ready in between is left to chance, as
// in stock.
const UnreadyBeforeReplace utilfeature.Feature = "UnreadyBeforeReplace"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		UnreadyBeforeReplace: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
