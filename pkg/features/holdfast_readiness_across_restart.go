// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// ReadinessAcrossRestart lets the published readiness of a container that
// outlived a restart of the kubelet stand until its first probe result. Off:
// such a container is not ready until its readiness probe succeeds, as in stock.
const ReadinessAcrossRestart utilfeature.Feature = "ReadinessAcrossRestart"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		ReadinessAcrossRestart: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
