// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// OrderedNamespaceDeletion makes the namespace controller wait until a namespace's pods
// are gone before it deletes anything else, NetworkPolicies among it (CVE-2024-7598).
// Upstream has the gate of this name from 1.33 on (#130035), off in the releases that it
// was brought to. Off: all is deleted at once.
const OrderedNamespaceDeletion utilfeature.Feature = "OrderedNamespaceDeletion"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		OrderedNamespaceDeletion: {Default: false, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
