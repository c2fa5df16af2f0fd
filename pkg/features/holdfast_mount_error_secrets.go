// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// MountErrorsWithoutSecrets makes the kubelet leave the values of mount options out of
// errors, events and logs (CVE-2019-11252). Off: the whole command is shown, passwords
// among it.
const MountErrorsWithoutSecrets utilfeature.Feature = "MountErrorsWithoutSecrets"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		MountErrorsWithoutSecrets: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
