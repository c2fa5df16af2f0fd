// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"reflect"

	apps "k8s.io/api/apps/v1beta1"
	"k8s.io/api/core/v1"
	extensions "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/features"
)

// holdfastNameConflictReason is the reason of the event that a DaemonSet gets when the name of its next
// ControllerRevision is taken by one that it cannot use.
const holdfastNameConflictReason = "RevisionNameConflict"

// holdfastMayUse reports whether existing, found under the name of ds's next revision, may stand for it. same tells
// whether its data is that of ds. With the gate off the data alone decides, as in stock.
func (dsc *DaemonSetsController) holdfastMayUse(ds *extensions.DaemonSet, existing *apps.ControllerRevision, same bool) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return false, fmt.Errorf("daemon set %s/%s has invalid label selector: %v", ds.Namespace, ds.Name, err)
	}
	enforced := utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionIdempotentCreate)
	verdict := history.HoldfastJudge(ds, selector, existing, same)
	history.HoldfastCountConflict(controllerKind.Kind, ds, existing.Name, verdict, enforced)
	if !enforced {
		return same, nil
	}
	if !verdict.Usable() {
		dsc.eventRecorder.Eventf(ds, v1.EventTypeWarning, holdfastNameConflictReason,
			"Controller revision %q cannot be used (%s); taking another name", existing.Name, verdict)
	}
	return verdict.Usable(), nil
}

// holdfastStaleCount returns an error when the collision count that ds was hashed with is not the one that the API
// server has: the next sync hashes with that one, and needs no further bump.
func holdfastStaleCount(ds, live *extensions.DaemonSet) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionIdempotentCreate) ||
		reflect.DeepEqual(ds.Status.CollisionCount, live.Status.CollisionCount) {
		return nil
	}
	return fmt.Errorf("the collision count of daemon set %s/%s in the cache is stale, waiting for the API server's", ds.Namespace, ds.Name)
}
