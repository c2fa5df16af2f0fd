// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// DeploymentReplicaSetOwnerCheck makes the Deployment controller take a ReplicaSet that already has the name of
	// its next one only when the Deployment controls it. Upstream has the same check from 1.10 on (#59212).
	DeploymentReplicaSetOwnerCheck utilfeature.Feature = "DeploymentReplicaSetOwnerCheck"

	// ControllerRevisionIdempotentCreate makes a StatefulSet or DaemonSet reuse its own ControllerRevision when the
	// name exists with identical data, and never one of another owner. Upstream has the first half from 1.12 on
	// (#67039, #67461), the second half in no release up to 1.36.
	ControllerRevisionIdempotentCreate utilfeature.Feature = "ControllerRevisionIdempotentCreate"

	// ControllerRevisionEqualByData compares ControllerRevisions by their data alone, not by a hash label that also
	// holds the collision count and is read as an int32. Upstream does the same from 1.35 on.
	ControllerRevisionEqualByData utilfeature.Feature = "ControllerRevisionEqualByData"

	// ControllerRevisionStableOrder puts ControllerRevisions of equal Revision in one order: by creation time, then
	// by name. Upstream does the same for StatefulSets from 1.14 on (#66882, #69975).
	ControllerRevisionStableOrder utilfeature.Feature = "ControllerRevisionStableOrder"
)

func init() {
	err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		DeploymentReplicaSetOwnerCheck:     {Default: true, PreRelease: utilfeature.Beta},
		ControllerRevisionIdempotentCreate: {Default: true, PreRelease: utilfeature.Beta},
		ControllerRevisionEqualByData:      {Default: true, PreRelease: utilfeature.Beta},
		ControllerRevisionStableOrder:      {Default: true, PreRelease: utilfeature.Beta},
	})
	if err != nil {
		panic(fmt.Sprintf("holdfast hash-collision: adding feature gates: %v", err))
	}
}
