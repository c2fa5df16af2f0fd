// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// limitCurrentReplicas keeps newVersionedStatefulSetPod, which is given currentSet, from
// making a pod that the rollout has reached with the current revision. A set without a
// partition gives a new pod the current revision if its ordinal is below
// currentSet.Status.CurrentReplicas. That is a count of an earlier sync, as the cache has it:
// when a pod that the rollout deleted ends at once, the cache still counts it, and the pod
// comes back with the revision that it was deleted for (kubernetes/kubernetes#78209).
//
// replicas is indexed by ordinal, and nil where there is no pod. A rollout goes from the
// highest ordinal down, and waits for each pod to have updateRevision and be healthy. So it
// has not reached what is below a pod of which that is not true; there the status decides,
// so that a rollout that is stuck takes no further pod.
func limitCurrentReplicas(currentSet *statefulSet, updateRevision string, replicas []*v1.Pod) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.StatefulSetUpdateRevision) {
		return
	}
	reached := len(replicas)
	for reached > 0 {
		reached--
		if pod := replicas[reached]; pod != nil && (getPodRevision(pod) != updateRevision || !isHealthy(pod)) {
			break
		}
	}
	if currentSet.Status.CurrentReplicas > int32(reached) {
		currentSet.Status.CurrentReplicas = int32(reached)
	}
}
