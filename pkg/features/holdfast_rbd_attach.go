// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// RBDAttachChecks looks at an image's watchers ten times before it refuses a mount and
// names them in an event, lets a read-only mount stand beside others, and removes locks
// of kubelets up to 1.8 from an image that nobody watches. Off: as stock.
const RBDAttachChecks utilfeature.Feature = "RBDAttachChecks"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		RBDAttachChecks: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
