// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// LocalnetFirewall makes the kubelet drop what comes from other machines and from pods
// to a loopback address of the node (CVE-2020-8558). Off: the rule is taken away.
const LocalnetFirewall utilfeature.Feature = "LocalnetFirewall"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		LocalnetFirewall: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
