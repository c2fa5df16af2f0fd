// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// SubpathMountByFD makes the kubelet bind-mount the file of a subPath that it has opened
// and checked (CVE-2021-25741). Off: mount(8) looks the file up once more by its name.
const SubpathMountByFD utilfeature.Feature = "SubpathMountByFD"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		SubpathMountByFD: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
