// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/api/core/v1"
	extensions "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/kubernetes/pkg/features"
)

// holdfastNameConflictReason is the reason of the event that a Deployment gets when the name of its next ReplicaSet
// is taken by a ReplicaSet that it cannot use.
const holdfastNameConflictReason = "ReplicaSetNameConflict"

// What a ReplicaSet that already has the wanted name is to the Deployment. These are label values of the metric.
const (
	holdfastOwn       = "own"       // same template, controlled by the Deployment: it is the new ReplicaSet
	holdfastCollision = "collision" // another template has the same hash
	holdfastForeign   = "foreign"   // same template, controlled by something else
	holdfastUnowned   = "unowned"   // same template, controlled by nothing, and the Deployment will not adopt it
	holdfastReleased  = "released"  // same template, still names the Deployment, but is outside its selector
	holdfastAdoptable = "adoptable" // same template, controlled by nothing; the next sync adopts it
	holdfastDeleted   = "deleted"   // same template, controlled by the Deployment, being deleted
)

var holdfastReplicaSetConflicts = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_hash_collision_replicaset_conflicts_total",
	Help: "Times that the name of a Deployment's next ReplicaSet existed already, by what the existing ReplicaSet was " +
		"(own, collision, foreign, unowned, released, adoptable, deleted) and by whether DeploymentReplicaSetOwnerCheck is enforced.",
}, []string{"existing", "enforced"})

func init() {
	prometheus.MustRegister(holdfastReplicaSetConflicts)
}

// holdfastJudge says what rs, which has the name that d's next ReplicaSet would get, is to d. It returns one of the
// holdfast constants. The rules are those of ReplicaSetControllerRefManager, which decides what the next sync claims:
// an object of another controller is never touched, one outside the selector is released, an orphan that is being
// deleted is not adopted.
func holdfastJudge(d *extensions.Deployment, rs *extensions.ReplicaSet) (string, error) {
	if !deploymentutil.EqualIgnoreHash(&d.Spec.Template, &rs.Spec.Template) {
		return holdfastCollision, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("deployment %s/%s has invalid label selector: %v", d.Namespace, d.Name, err)
	}
	matches := selector.Matches(labels.Set(rs.Labels))
	switch ref := metav1.GetControllerOf(rs); {
	case ref != nil && ref.UID != d.UID:
		return holdfastForeign, nil
	case ref != nil && !matches:
		return holdfastReleased, nil
	case ref != nil && rs.DeletionTimestamp != nil:
		return holdfastDeleted, nil
	case ref != nil:
		return holdfastOwn, nil
	case matches && rs.DeletionTimestamp == nil:
		return holdfastAdoptable, nil
	default:
		return holdfastUnowned, nil
	}
}

// holdfastNameTaken reports whether rs, found under the name of d's next ReplicaSet, forces d to take another name
// (count one more collision). If it does not, rs is d's new ReplicaSet. An error means neither: rs is about to become
// usable or to go away, and the sync has to be tried again.
func (dc *DeploymentController) holdfastNameTaken(d *extensions.Deployment, rs *extensions.ReplicaSet) (bool, error) {
	existing, err := holdfastJudge(d, rs)
	if err != nil {
		return false, err
	}
	enforced := utilfeature.DefaultFeatureGate.Enabled(features.DeploymentReplicaSetOwnerCheck)
	if enforced && (existing == holdfastForeign || existing == holdfastReleased || existing == holdfastUnowned) {
		// The cache may be behind the one whose ReplicaSet it was, and a name is taken for good.
		live, err := dc.client.ExtensionsV1beta1().ReplicaSets(rs.Namespace).Get(rs.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		was := existing
		if existing, err = holdfastJudge(d, live); err != nil {
			return false, err
		}
		if existing == holdfastOwn {
			return false, fmt.Errorf("replica set %s/%s of deployment %s is %s in the cache, waiting until that knows", rs.Namespace, rs.Name, d.Name, was)
		}
		rs = live
	}
	holdfastReplicaSetConflicts.WithLabelValues(existing, fmt.Sprint(enforced)).Inc()
	if !enforced {
		return existing == holdfastCollision, nil
	}

	why := ""
	switch existing {
	case holdfastOwn:
		return false, nil
	case holdfastAdoptable:
		return false, fmt.Errorf("replica set %s/%s is not adopted by deployment %s yet", rs.Namespace, rs.Name, d.Name)
	case holdfastDeleted:
		return false, fmt.Errorf("replica set %s/%s of deployment %s is being deleted, waiting until it is gone", rs.Namespace, rs.Name, d.Name)
	case holdfastCollision:
		why = "has the same hash but another template"
	case holdfastForeign:
		ref := metav1.GetControllerOf(rs)
		// Nobody bounds these fields of an owner reference.
		why = fmt.Sprintf("is controlled by %.63q %.253q (UID %.63q)", ref.Kind, ref.Name, ref.UID)
	case holdfastReleased:
		why = "is outside the selector"
	case holdfastUnowned:
		why = "has no controller and cannot be adopted: it is outside the selector or being deleted"
	}
	glog.Warningf("Deployment %s/%s cannot use replica set %q, which %s; taking another name", d.Namespace, d.Name, rs.Name, why)
	dc.eventRecorder.Eventf(d, v1.EventTypeWarning, holdfastNameConflictReason, "Replica set %q %s; taking another name", rs.Name, why)
	return true, nil
}
