// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"strconv"

	"github.com/golang/glog"

	"k8s.io/kubernetes/pkg/api"
	"k8s.io/kubernetes/pkg/apis/extensions"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/integer"
	labelsutil "k8s.io/kubernetes/pkg/util/labels"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// CollisionCountAnnotation on a Deployment is the number of names that its
// controller has found taken. Later releases have status.collisionCount for
// it, which a 1.2 apiserver would drop; the key is formed like that of the
// revision, which is kept beside it. It does not go to the ReplicaSets.
const CollisionCountAnnotation = "deployment.kubernetes.io/collision-count"

// CollisionCount reads the annotation. One that is missing, or that somebody
// has broken, counts as 0: the controller then finds the names that are taken
// once more.
func CollisionCount(deployment *extensions.Deployment) int {
	v, ok := deployment.Annotations[CollisionCountAnnotation]
	if !ok {
		return 0
	}
	count, err := strconv.ParseInt(v, 10, 32)
	if err != nil || count < 0 {
		glog.Warningf("Deployment %s/%s: annotation %s is %q, not a count; starting from 0.", deployment.Namespace, deployment.Name, CollisionCountAnnotation, v)
		return 0
	}
	return int(count)
}

// IsCollisionCount reports whether the annotation key is the controller's
// count, which stays on the Deployment.
func IsCollisionCount(key string) bool {
	return key == CollisionCountAnnotation && features.Enabled(features.HashCollision)
}

// EqualIgnoringHash reports whether two templates are the same but for the
// label that is made from their hash.
func EqualIgnoringHash(a, b api.PodTemplateSpec) bool {
	a.Labels = labelsutil.CloneAndRemoveLabel(a.Labels, extensions.DefaultDeploymentUniqueLabelKey)
	b.Labels = labelsutil.CloneAndRemoveLabel(b.Labels, extensions.DefaultDeploymentUniqueLabelKey)
	return api.Semantic.DeepEqual(a, b)
}

// HasTemplateOf reports whether the replica set was made from the deployment's
// template, under whichever hash.
func HasTemplateOf(deployment *extensions.Deployment, rs *extensions.ReplicaSet) bool {
	return features.Enabled(features.HashCollision) && EqualIgnoringHash(rs.Spec.Template, deployment.Spec.Template)
}

// MaxCountedNames is how many counts beyond the deployment's own are tried when
// a counted name is looked for.
const MaxCountedNames = 10

// maxLookedFor bounds what a forged annotation can make the controller compute.
const maxLookedFor = 100

// IsCounted reports whether the replica set has the deployment's template under
// a name and label that are made from the template and a collision count. One
// with any other hash, of a controller of another release, is not.
func IsCounted(deployment *extensions.Deployment, rs *extensions.ReplicaSet) bool {
	key := extensions.DefaultDeploymentUniqueLabelKey
	label := rs.Spec.Template.Labels[key]
	if rs.Name != deployment.Name+"-"+label || rs.Spec.Selector == nil || rs.Spec.Selector.MatchLabels[key] != label || !HasTemplateOf(deployment, rs) {
		return false
	}
	last := integer.IntMin(CollisionCount(deployment), maxLookedFor) + MaxCountedNames
	for count := 1; count <= last; count++ {
		if label == strconv.FormatUint(uint64(podutil.GetPodTemplateSpecHashWithCount(deployment.Spec.Template, count)), 10) {
			return true
		}
	}
	return false
}

// findNewReplicaSetIgnoringHash finds the deployment's new replica set when
// none carries the hash of its template: the one that got another name because
// of a collision. If several fit it is the oldest, and the first by name of
// those, so that every sync finds the same one.
func findNewReplicaSetIgnoringHash(deployment *extensions.Deployment, rsList []extensions.ReplicaSet) *extensions.ReplicaSet {
	var found *extensions.ReplicaSet
	for i := range rsList {
		rs := &rsList[i]
		if !HasTemplateOf(deployment, rs) {
			continue
		}
		if found == nil || rs.CreationTimestamp.Before(found.CreationTimestamp) ||
			(rs.CreationTimestamp.Equal(found.CreationTimestamp) && rs.Name < found.Name) {
			found = rs
		}
	}
	return found
}

// newReplicaSetMatcher returns a test for the deployment's new replica set
// among those in rsList.
func newReplicaSetMatcher(deployment *extensions.Deployment, rsList []extensions.ReplicaSet) func(*extensions.ReplicaSet) bool {
	newRS, err := FindNewReplicaSet(deployment, rsList)
	return func(rs *extensions.ReplicaSet) bool {
		return err == nil && newRS != nil && rs.Name == newRS.Name
	}
}
