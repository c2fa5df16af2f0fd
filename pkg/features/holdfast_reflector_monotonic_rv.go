// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// ReflectorMonotonicResourceVersion keeps the resourceVersion from which a
	// reflector restarts its watch from going back within the watch.
	//
	// beta: v1.9.11+holdfast.1
	ReflectorMonotonicResourceVersion utilfeature.Feature = "ReflectorMonotonicResourceVersion"
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		ReflectorMonotonicResourceVersion: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
