// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// GitRepoVolumeHardening makes the kubelet refuse gitRepo volumes that reach the
	// node: options in place of arguments, a repository that is not a remote one, and a
	// directory that puts the clone where git takes it for its own data
	// (CVE-2024-10220, CVE-2025-1767). Off: git is called with what the pod says.
	GitRepoVolumeHardening utilfeature.Feature = "GitRepoVolumeHardening"

	// GitRepoVolumeDriver lets the kubelet set up gitRepo volumes at all. Upstream has
	// the gate of this name from 1.33 on (#129923). On: as ever; off: a pod with a
	// gitRepo volume does not start.
	GitRepoVolumeDriver utilfeature.Feature = "GitRepoVolumeDriver"
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		GitRepoVolumeHardening: {Default: true, PreRelease: utilfeature.Beta},
		GitRepoVolumeDriver:    {Default: true, PreRelease: utilfeature.GA},
	}); err != nil {
		panic(err)
	}
}
