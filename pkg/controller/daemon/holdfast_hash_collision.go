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

// holdfastJudge says what existing, found under the name of ds's next revision, is to ds. same tells whether its data is
// that of ds.
func holdfastJudge(ds *extensions.DaemonSet, existing *apps.ControllerRevision, same bool) (history.HoldfastExisting, error) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("daemon set %s/%s has invalid label selector: %v", ds.Namespace, ds.Name, err)
	}
	return history.HoldfastJudge(ds, selector, existing, same), nil
}

// holdfastMayUse reports whether existing, found under the name of ds's next revision, may stand for it. same tells
// whether its data is that of ds. With the gate off the data alone decides, as in stock.
func (dsc *DaemonSetsController) holdfastMayUse(ds *extensions.DaemonSet, existing *apps.ControllerRevision, same bool) (bool, error) {
	verdict, err := holdfastJudge(ds, existing, same)
	if err != nil {
		return false, err
	}
	enforced := utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionIdempotentCreate)
	history.HoldfastCountConflict(controllerKind.Kind, ds, existing.Name, verdict, enforced)
	if !enforced {
		return same, nil
	}
	return verdict.Usable(), nil
}

// holdfastAnotherName says that ds's next revision gets another name than that of existing, which cannot be used. It
// returns an error instead when the collision count that ds was hashed with is not the one that live, the API server's,
// has: the next sync hashes with that one, and needs no further bump.
func (dsc *DaemonSetsController) holdfastAnotherName(ds, live *extensions.DaemonSet, existing *apps.ControllerRevision) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionIdempotentCreate) {
		return nil
	}
	if !reflect.DeepEqual(ds.Status.CollisionCount, live.Status.CollisionCount) {
		return fmt.Errorf("the collision count of daemon set %s/%s in the cache is stale, waiting for the API server's", ds.Namespace, ds.Name)
	}
	same, err := Match(ds, existing)
	if err != nil {
		return err
	}
	verdict, err := holdfastJudge(ds, existing, same)
	if err != nil {
		return err
	}
	history.HoldfastLogAnotherName(controllerKind.Kind, ds, existing.Name, verdict)
	dsc.eventRecorder.Eventf(ds, v1.EventTypeWarning, holdfastNameConflictReason,
		"Controller revision %q cannot be used (%s); taking another name", existing.Name, verdict)
	return nil
}
