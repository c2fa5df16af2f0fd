// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	apps "k8s.io/api/apps/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// HoldfastExisting says what a ControllerRevision that already has the wanted name is to the parent that wanted it.
type HoldfastExisting string

const (
	// HoldfastOwn has identical data and is controlled by the parent: it is the wanted revision.
	HoldfastOwn HoldfastExisting = "own"
	// HoldfastAdoptable has identical data, no controller, and labels that the parent selects: it is the wanted
	// revision, and the parent's next sync adopts it.
	HoldfastAdoptable HoldfastExisting = "adoptable"
	// HoldfastCollision has other data.
	HoldfastCollision HoldfastExisting = "collision"
	// HoldfastForeign has identical data and another controller.
	HoldfastForeign HoldfastExisting = "foreign"
	// HoldfastUnowned has identical data, no controller, and labels that the parent does not select: nobody would
	// ever adopt it.
	HoldfastUnowned HoldfastExisting = "unowned"
	// HoldfastUnknown is counted when the gate is off and the revision is not in the cache.
	HoldfastUnknown HoldfastExisting = "unknown"
)

// Usable reports whether the existing revision may stand for the wanted one.
func (e HoldfastExisting) Usable() bool {
	return e == HoldfastOwn || e == HoldfastAdoptable
}

var (
	holdfastRevisionConflicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_hash_collision_revision_conflicts_total",
		Help: "Times that the name of a new ControllerRevision existed already, by kind of the parent, by what the existing " +
			"revision was (own, adoptable, collision, foreign, unowned, unknown) and by whether ControllerRevisionIdempotentCreate is enforced.",
	}, []string{"kind", "existing", "enforced"})

	holdfastEqualOverrides = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_hash_collision_equal_overrides_total",
		Help: "Comparisons of ControllerRevisions with identical data whose hash labels say unequal, " +
			"by whether ControllerRevisionEqualByData is enforced.",
	}, []string{"enforced"})

	holdfastTies = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_hash_collision_revision_ties_total",
		Help: "Comparisons, while sorting, of two ControllerRevisions of equal Revision, by whether ControllerRevisionStableOrder is enforced.",
	}, []string{"enforced"})

	// One line each in the log: these are found again in every sync.
	holdfastEqualOnce, holdfastTieOnce sync.Once
)

func init() {
	prometheus.MustRegister(holdfastRevisionConflicts, holdfastEqualOverrides, holdfastTies)
}

// HoldfastJudge says what existing, found under the name of a new revision of parent, is to parent. same tells whether
// its data is the wanted data; selector is the parent's.
func HoldfastJudge(parent metav1.Object, selector labels.Selector, existing *apps.ControllerRevision, same bool) HoldfastExisting {
	switch ref := metav1.GetControllerOf(existing); {
	case !same:
		return HoldfastCollision
	case ref != nil && ref.UID == parent.GetUID():
		return HoldfastOwn
	case ref != nil:
		return HoldfastForeign
	case selector.Matches(labels.Set(existing.Labels)):
		return HoldfastAdoptable
	default:
		return HoldfastUnowned
	}
}

// HoldfastCountConflict counts one revision whose name was taken, and logs that it is reused. kind is that of the
// parent.
func HoldfastCountConflict(kind string, parent metav1.Object, name string, existing HoldfastExisting, enforced bool) {
	holdfastRevisionConflicts.WithLabelValues(kind, string(existing), fmt.Sprint(enforced)).Inc()
	if enforced && existing.Usable() {
		glog.V(2).Infof("%s %s/%s: revision %s exists already with identical data, reusing it", kind, parent.GetNamespace(), parent.GetName(), name)
	}
}

// HoldfastLogAnotherName logs that a revision gets another name than name. It is called when nothing may stop that any
// more but an error of the API server.
func HoldfastLogAnotherName(kind string, parent metav1.Object, name string, existing HoldfastExisting) {
	glog.Warningf("%s %s/%s: revision name %s is taken (%s), taking another name", kind, parent.GetNamespace(), parent.GetName(), name, existing)
}

// holdfastReuse looks at the revision that has the name of wanted. It returns it when it may stand for wanted, nil
// when wanted needs another name, and an error when the API server does not tell. With the gate off it always returns
// nil and asks only the cache, to count.
func (rh *realHistory) holdfastReuse(parent metav1.Object, wanted *apps.ControllerRevision) (*apps.ControllerRevision, error) {
	kind := ""
	if ref := metav1.GetControllerOf(wanted); ref != nil {
		kind = ref.Kind
	}
	enforced := utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionIdempotentCreate)
	var existing *apps.ControllerRevision
	var err error
	if enforced {
		// The cache is what made us create a revision that exists, so it is not asked.
		existing, err = rh.client.AppsV1beta1().ControllerRevisions(parent.GetNamespace()).Get(wanted.Name, metav1.GetOptions{})
	} else {
		existing, err = rh.lister.ControllerRevisions(parent.GetNamespace()).Get(wanted.Name)
	}
	if err != nil {
		HoldfastCountConflict(kind, parent, wanted.Name, HoldfastUnknown, enforced)
		if !enforced {
			return nil, nil
		}
		return nil, err
	}
	// NewControllerRevision labels a revision with the parent's selector, plus the hash.
	selected := labels.Set{}
	for k, v := range wanted.Labels {
		if k != ControllerRevisionHashLabel {
			selected[k] = v
		}
	}
	verdict := HoldfastJudge(parent, labels.SelectorFromSet(selected), existing, holdfastSameData(existing, wanted))
	HoldfastCountConflict(kind, parent, wanted.Name, verdict, enforced)
	if !enforced {
		return nil, nil
	}
	if !verdict.Usable() {
		HoldfastLogAnotherName(kind, parent, wanted.Name, verdict)
		return nil, nil
	}
	return existing, nil
}

// holdfastSameData is the part of EqualRevision that looks at the data.
func holdfastSameData(lhs, rhs *apps.ControllerRevision) bool {
	return bytes.Equal(lhs.Data.Raw, rhs.Data.Raw) && apiequality.Semantic.DeepEqual(lhs.Data.Object, rhs.Data.Object)
}

// holdfastEqualDespiteLabels is asked when the hash labels of two revisions say that they differ. It returns true when
// their data is the same all the same: the label also hashes the collision count of the moment, so it differs between
// two revisions of one template as soon as that count has moved.
func holdfastEqualDespiteLabels(lhs, rhs *apps.ControllerRevision) bool {
	if !holdfastSameData(lhs, rhs) {
		return false
	}
	enforced := utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionEqualByData)
	holdfastEqualOverrides.WithLabelValues(fmt.Sprint(enforced)).Inc()
	if enforced {
		holdfastEqualOnce.Do(func() {
			glog.Warningf("ControllerRevisions %s/%s and %s have identical data and different hash labels (%s, %s); taking them as equal (said once)",
				lhs.Namespace, lhs.Name, rhs.Name, lhs.Labels[ControllerRevisionHashLabel], rhs.Labels[ControllerRevisionHashLabel])
		})
	}
	return enforced
}

// HoldfastLess orders two ControllerRevisions of equal Revision: the older first, then by name. With the gate off it
// returns false both ways round, which leaves their order to the sort, as stock does.
func HoldfastLess(lhs, rhs *apps.ControllerRevision) bool {
	enforced := utilfeature.DefaultFeatureGate.Enabled(features.ControllerRevisionStableOrder)
	holdfastTies.WithLabelValues(fmt.Sprint(enforced)).Inc()
	if !enforced {
		return false
	}
	holdfastTieOnce.Do(func() {
		glog.Warningf("ControllerRevisions %s/%s and %s have the same Revision %d; ordering them by creation time and name (said once)",
			lhs.Namespace, lhs.Name, rhs.Name, lhs.Revision)
	})
	if lhs.CreationTimestamp.Equal(&rhs.CreationTimestamp) {
		return lhs.Name < rhs.Name
	}
	return lhs.CreationTimestamp.Before(&rhs.CreationTimestamp)
}
