// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"strconv"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/kubernetes/pkg/api"
	"k8s.io/kubernetes/pkg/api/errors"
	"k8s.io/kubernetes/pkg/api/unversioned"
	"k8s.io/kubernetes/pkg/apis/extensions"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/labels"
	deploymentutil "k8s.io/kubernetes/pkg/util/deployment"
	labelsutil "k8s.io/kubernetes/pkg/util/labels"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// Reasons of the events on the Deployment.
const (
	// The name was taken by a replica set of this deployment that has another
	// template.
	reasonNameCollision = "ReplicaSetNameCollision"
	// The name was taken by a replica set that is not this deployment's.
	reasonNameForeign = "ReplicaSetNameForeign"
	// The deployment's collision count could not be written.
	reasonCountNotSaved = "CollisionCountNotSaved"
)

// maxUnsavedNames is how many names one sync tries while the apiserver refuses
// to keep the count.
const maxUnsavedNames = deploymentutil.MaxCountedNames

var (
	takenNames = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_hash_collision_taken_names_total",
		Help: "Names computed for a new ReplicaSet that were taken, by what held them: collision (another template of the same Deployment), foreign (not of this Deployment), own (the very ReplicaSet), unchecked (the gate is off).",
	}, []string{"holder"})
	countedNames = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_hash_collision_renamed_total",
		Help: "ReplicaSets that were created under a name made from template and collision count.",
	})
	unsavedCounts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_hash_collision_unsaved_total",
		Help: "Collision counts that the apiserver refused to keep.",
	})
)

func init() {
	prometheus.MustRegister(takenNames)
	prometheus.MustRegister(countedNames)
	prometheus.MustRegister(unsavedCounts)
}

// holder says what has a name that a new replica set should have had.
type holder string

const (
	holderOwn       holder = "own"       // same template, selected by the deployment
	holderCollision holder = "collision" // another template, selected by the deployment
	holderForeign   holder = "foreign"   // not selected by the deployment
)

// isNameTaken reports whether err, from creating a replica set, is for
// resolveName to deal with. With the gate off it only counts.
func (dc *DeploymentController) isNameTaken(err error) bool {
	if !errors.IsAlreadyExists(err) {
		return false
	}
	if !features.Enabled(features.HashCollision) {
		takenNames.WithLabelValues("unchecked").Inc()
		return false
	}
	return true
}

// resolveName finds out who has the name of newRS, which could not be created,
// and takes that replica set over, or moves an old one that has no pods out of
// the way (takeName), or creates newRS under another name, made from the
// template and the deployment's collision count. revision is newRS's. It
// returns the deployment's new replica set.
//
// The name that a 1.2 controller computes is always tried first, before this
// is called, so a count changes only the names that are taken. The count is
// written before the name that is made from it is used, and the sync starts
// again after that; a controller that stops in between finds it when it starts.
// Nothing depends on the count being there: a replica set is found by its
// template, and without a count the same names are found taken once more.
func (dc *DeploymentController) resolveName(deployment *extensions.Deployment, newRS *extensions.ReplicaSet, revision string) (*extensions.ReplicaSet, error) {
	first := newRS.Name
	held, existing, err := dc.inspectHolder(deployment, newRS)
	if err != nil {
		return nil, dc.tryAgain(deployment, err)
	}
	if held == holderOwn {
		return dc.adopt(deployment, existing, revision)
	}
	if held == holderCollision {
		if created, err := dc.takeName(deployment, newRS, existing, revision); created != nil || err != nil {
			return created, err
		}
	}
	firstHeld := held

	// The cache may be behind our own last write.
	live, err := dc.client.Extensions().Deployments(deployment.Namespace).Get(deployment.Name)
	if err != nil {
		return nil, dc.tryAgain(deployment, fmt.Errorf("error getting deployment %s for its collision count: %v", deployment.Name, err))
	}
	if live.UID != deployment.UID {
		return nil, dc.tryAgain(deployment, fmt.Errorf("deployment %s was deleted and made again", deployment.Name))
	}
	count := deploymentutil.CollisionCount(live)
	for unsaved := 0; unsaved <= maxUnsavedNames; unsaved++ {
		if count > 0 {
			setHash(deployment, newRS, podutil.GetPodTemplateSpecHashWithCount(deployment.Spec.Template, count))
			created, err := dc.client.Extensions().ReplicaSets(newRS.Namespace).Create(newRS)
			if err == nil {
				dc.announceName(deployment, first, firstHeld, created, count)
				return created, dc.updateDeploymentRevision(deployment, revision)
			}
			if !errors.IsAlreadyExists(err) {
				return nil, dc.tryAgain(deployment, fmt.Errorf("error creating replica set %v: %v", deployment.Name, err))
			}
			held, existing, err = dc.inspectHolder(deployment, newRS)
			if err != nil {
				return nil, dc.tryAgain(deployment, err)
			}
			if held == holderOwn {
				return dc.adopt(deployment, existing, revision)
			}
		}

		count++
		err := dc.saveCollisionCount(live, count)
		switch {
		case err == nil:
			glog.Warningf("Deployment %s/%s: replica set name %s is taken (%s); collision count is now %d.", deployment.Namespace, deployment.Name, newRS.Name, held, count)
			return nil, dc.tryAgain(deployment, fmt.Errorf("replica set name %s is taken, trying again with collision count %d", newRS.Name, count))
		case errors.IsConflict(err), errors.IsNotFound(err):
			return nil, dc.tryAgain(deployment, fmt.Errorf("error saving collision count %d: %v", count, err))
		}
		unsavedCounts.Inc()
		glog.Warningf("Deployment %s/%s: collision count %d is not saved, going on without: %v", deployment.Namespace, deployment.Name, count, err)
		dc.eventRecorder.Eventf(deployment, api.EventTypeWarning, reasonCountNotSaved, "Could not save collision count %d: %v", count, err)
	}
	return nil, dc.tryAgain(deployment, fmt.Errorf("no free name for a replica set of %s up to collision count %d", deployment.Name, count))
}

// tryAgain queues the deployment once more and returns err for the log.
func (dc *DeploymentController) tryAgain(deployment *extensions.Deployment, err error) error {
	dc.enqueueDeployment(deployment)
	return err
}

// inspectHolder gets the replica set that has the name of newRS, and says whose
// it is. A 1.2 ReplicaSet has no owner reference: a deployment's are those whose
// labels its selector matches.
func (dc *DeploymentController) inspectHolder(deployment *extensions.Deployment, newRS *extensions.ReplicaSet) (holder, *extensions.ReplicaSet, error) {
	existing, err := dc.client.Extensions().ReplicaSets(newRS.Namespace).Get(newRS.Name)
	if err != nil {
		return "", nil, fmt.Errorf("replica set %s exists already but cannot be read: %v", newRS.Name, err)
	}
	held, err := whose(deployment, existing)
	if err != nil {
		return "", nil, err
	}
	takenNames.WithLabelValues(string(held)).Inc()
	return held, existing, nil
}

// whose says what a replica set is to the deployment.
func whose(deployment *extensions.Deployment, rs *extensions.ReplicaSet) (holder, error) {
	selector, err := unversioned.LabelSelectorAsSelector(deployment.Spec.Selector)
	switch {
	case err != nil:
		return "", fmt.Errorf("invalid label selector of deployment %s: %v", deployment.Name, err)
	case selector.Empty() || !selector.Matches(labels.Set(rs.Labels)):
		return holderForeign, nil
	case deploymentutil.HasTemplateOf(deployment, rs):
		return holderOwn, nil
	}
	return holderCollision, nil
}

// adopt makes an existing replica set of the deployment's template its new
// one. That it was not found before means that the cache is behind.
func (dc *DeploymentController) adopt(deployment *extensions.Deployment, rs *extensions.ReplicaSet, revision string) (*extensions.ReplicaSet, error) {
	if !labelsutil.SelectorHasLabel(rs.Spec.Selector, extensions.DefaultDeploymentUniqueLabelKey) {
		return nil, dc.tryAgain(deployment, fmt.Errorf("replica set %s has the template of deployment %s and not its hash label yet", rs.Name, deployment.Name))
	}
	glog.V(2).Infof("Deployment %s/%s: replica set %s exists already and is its own.", deployment.Namespace, deployment.Name, rs.Name)
	if setNewReplicaSetAnnotations(deployment, rs, revision) {
		return dc.client.Extensions().ReplicaSets(rs.Namespace).Update(rs)
	}
	return rs, nil
}

// nameOf returns the name of the deployment's replica set that is made from hash.
func nameOf(deployment *extensions.Deployment, hash uint32) string {
	return deployment.Name + "-" + strconv.FormatUint(uint64(hash), 10)
}

// setHash gives rs the name, the label and the selector that are made from
// hash. The rest of rs is left as it is.
func setHash(deployment *extensions.Deployment, rs *extensions.ReplicaSet, hash uint32) {
	key := extensions.DefaultDeploymentUniqueLabelKey
	rs.Name = nameOf(deployment, hash)
	rs.Spec.Selector = labelsutil.CloneSelectorAndAddLabel(deployment.Spec.Selector, key, hash)
	rs.Spec.Template.Labels = labelsutil.CloneAndAddLabel(deployment.Spec.Template.Labels, key, hash)
}

// saveCollisionCount writes the count to the deployment, of which live is the
// newest known state.
func (dc *DeploymentController) saveCollisionCount(live *extensions.Deployment, count int) error {
	update := *live
	update.Annotations = map[string]string{}
	for k, v := range live.Annotations {
		update.Annotations[k] = v
	}
	update.Annotations[deploymentutil.CollisionCountAnnotation] = strconv.Itoa(count)
	_, err := dc.updateDeployment(&update)
	return err
}

// announceName says that a replica set has another name than its template's
// hash gives, and that it was created, as for any other replica set.
func (dc *DeploymentController) announceName(deployment *extensions.Deployment, taken string, held holder, rs *extensions.ReplicaSet, count int) {
	countedNames.Inc()
	reason, why := reasonNameCollision, "holds another pod template with the same hash"
	if held == holderForeign {
		reason, why = reasonNameForeign, "is not selected by this deployment"
	}
	leaving := ""
	if isRecreate(deployment) {
		leaving = "; pause this deployment before an upstream controller manager takes over, which would scale it to 0"
	}
	glog.Warningf("Deployment %s/%s: replica set %s %s; created %s (collision count %d)%s.", deployment.Namespace, deployment.Name, taken, why, rs.Name, count, leaving)
	dc.eventRecorder.Eventf(deployment, api.EventTypeWarning, reason, "Replica set %q %s; created %q instead (collision count %d)%s", taken, why, rs.Name, count, leaving)
	dc.announceScale(deployment, rs)
}

// announceScale says that a replica set was created with pods, as upstream does.
func (dc *DeploymentController) announceScale(deployment *extensions.Deployment, rs *extensions.ReplicaSet) {
	if rs.Spec.Replicas > 0 {
		dc.eventRecorder.Eventf(deployment, api.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s to %d", "up", rs.Name, rs.Spec.Replicas)
	}
}
