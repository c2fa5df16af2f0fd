// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// ProbeOutputLimits bounds what the kubelet keeps of the output of HTTP probes, HTTP
// lifecycle hooks and commands that it runs in containers. The output is read to its
// end and the result is the same. Off: all of it is kept in memory.
const ProbeOutputLimits utilfeature.Feature = "ProbeOutputLimits"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		ProbeOutputLimits: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
