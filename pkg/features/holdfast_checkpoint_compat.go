// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// CheckpointCompat makes the docker runtime of the kubelet accept sandbox
	// checkpoints that a kubelet 1.6 or 1.7 wrote, by the checksum of that
	// release. Off: they are removed as corrupt, as in stock 1.9.
	CheckpointCompat utilfeature.Feature = "CheckpointCompat"

	// LegacyCheckpointWrite keeps the checkpoints readable for the kubelet that
	// was here before: if that was 1.7 or older, they are written so that 1.7
	// accepts them too. Off: all are written, and at start rewritten, as stock
	// 1.9 does; for leaving Holdfast towards a stock 1.8 or 1.9 kubelet. Without
	// CheckpointCompat it does nothing.
	LegacyCheckpointWrite utilfeature.Feature = "LegacyCheckpointWrite"
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		CheckpointCompat:      {Default: true, PreRelease: utilfeature.Beta},
		LegacyCheckpointWrite: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
