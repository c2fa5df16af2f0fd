// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// SubpathUnbindAfterStart unmounts the bind mount that the kubelet made for a
	// subPath as soon as the container has its own. Off: it stays below
	// pods/<uid>/volume-subpaths until the volume is unmounted, as in stock.
	SubpathUnbindAfterStart utilfeature.Feature = "SubpathUnbindAfterStart"

	// OrphanedPodSubpathUnmount unmounts what is still mounted below
	// pods/<uid>/volume-subpaths before the directory of a pod that is gone is
	// removed, and keeps the directory if it cannot. Off: the removal goes through
	// bind mounts of its own filesystem, as in stock.
	OrphanedPodSubpathUnmount utilfeature.Feature = "OrphanedPodSubpathUnmount"
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		SubpathUnbindAfterStart:   {Default: true, PreRelease: utilfeature.Beta},
		OrphanedPodSubpathUnmount: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
