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
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
	deploymentutil "k8s.io/kubernetes/pkg/util/deployment"
	labelsutil "k8s.io/kubernetes/pkg/util/labels"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// A stock controller takes a replica set under a counted name for an old one.
// With strategy Recreate it scales the old ones to 0 before it creates the new
// one, which it then cannot: the deployment has no pods for good. So the
// computed name goes to the new replica set wherever that harms no pod. The one
// that has the name is an old one; once it has no pods its content moves to a
// counted name, and what stock finds is entirely its own.
//
// A name and the hash label stay tied to each other in all of this: a replica
// set with the label of another's name would share that one's pods with it.

var movedSets = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_hash_collision_moved_total",
	Help: "Old ReplicaSets without pods that were moved to a counted name, because a new template has their hash.",
})

func init() {
	prometheus.MustRegister(movedSets)
}

func isRecreate(deployment *extensions.Deployment) bool {
	return deployment.Spec.Strategy.Type == extensions.RecreateDeploymentStrategyType
}

// isMovable reports whether rs has the form that a deployment controller gives
// its replica sets, with hash (decimal) in label and selector.
func isMovable(rs *extensions.ReplicaSet, hash string) bool {
	key := extensions.DefaultDeploymentUniqueLabelKey
	return rs.Spec.Template.Labels[key] == hash && rs.Spec.Selector != nil && rs.Spec.Selector.MatchLabels[key] == hash
}

// hasNoPods reports whether rs, as the API server has it now, is scaled to 0,
// its controller has seen that, and there is no pod left that the replica set
// controller would count. Pods that are being deleted do not count: they never
// come back, and a 1.2 controller does not wait for them with Recreate either.
func (dc *DeploymentController) hasNoPods(rs *extensions.ReplicaSet) (bool, error) {
	if rs.Spec.Replicas != 0 || rs.Status.Replicas != 0 || rs.Generation > rs.Status.ObservedGeneration {
		return false, nil
	}
	active, err := dc.hasActivePods(rs)
	return !active && err == nil, err
}

// hasActivePods reports whether the API server has a pod of rs that the replica set
// controller would count.
func (dc *DeploymentController) hasActivePods(rs *extensions.ReplicaSet) (bool, error) {
	selector, err := unversioned.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return false, fmt.Errorf("invalid label selector of replica set %s: %v", rs.Name, err)
	}
	pods, err := dc.client.Core().Pods(rs.Namespace).List(api.ListOptions{LabelSelector: selector})
	if err != nil {
		return false, fmt.Errorf("error listing pods of replica set %s: %v", rs.Name, err)
	}
	for _, pod := range pods.Items {
		if controller.IsPodActive(pod) {
			return true, nil
		}
	}
	return false, nil
}

// scaleDownWithoutPods scales rs, an old replica set that a deployment with strategy
// Recreate waits for, to 0 if it has no pod that counts. The strategy's own step would, but
// looks only at replica sets of which it finds a pod. One whose pods a quota or an admission
// plugin refuses has none: nothing would ever scale it down.
func (dc *DeploymentController) scaleDownWithoutPods(deployment *extensions.Deployment, rs *extensions.ReplicaSet) error {
	if rs.Spec.Replicas == 0 {
		return nil
	}
	if active, err := dc.hasActivePods(rs); err != nil || active {
		return err
	}
	_, _, err := dc.scaleReplicaSetAndRecordEvent(rs, 0, deployment)
	return err
}

// takeName creates newRS under its computed name after the content of holder,
// an old replica set of the deployment that has that name, was moved to a
// counted one. It returns nil and no error if holder is to keep its name: it
// has pods, or another form. With strategy Recreate pods are waited for: an
// error is returned, and the event that they are gone queues the deployment.
//
// Between any two of its writes it can be stopped, and what is there is found
// again by name and template. Nothing is deleted that has not been copied.
func (dc *DeploymentController) takeName(deployment *extensions.Deployment, newRS, holder *extensions.ReplicaSet, revision string) (*extensions.ReplicaSet, error) {
	hash := newRS.Spec.Template.Labels[extensions.DefaultDeploymentUniqueLabelKey]
	// A rollback first makes the replica set of the template that it is about to
	// replace, before anything is scaled down: nothing is to be waited for.
	if deployment.Spec.RollbackTo != nil || !isMovable(holder, hash) {
		return nil, nil
	}
	// The cache may be behind, and what the user wants now another template, a
	// pause, or the deployment gone.
	live, err := dc.client.Extensions().Deployments(deployment.Namespace).Get(deployment.Name)
	if err != nil {
		return nil, dc.tryAgain(deployment, fmt.Errorf("error getting deployment %s before moving a replica set: %v", deployment.Name, err))
	}
	if live.UID != deployment.UID {
		return nil, dc.tryAgain(deployment, fmt.Errorf("deployment %s was deleted and made again", deployment.Name))
	}
	if live.Generation > deployment.Generation {
		return nil, fmt.Errorf("deployment %s has changed, waiting for its newest state", deployment.Name)
	}
	empty, err := dc.hasNoPods(holder)
	if err != nil {
		return nil, dc.tryAgain(deployment, err)
	}
	if !empty {
		if isRecreate(deployment) {
			if err := dc.scaleDownWithoutPods(deployment, holder); err != nil {
				return nil, dc.tryAgain(deployment, err)
			}
			return nil, fmt.Errorf("replica set name %s is taken by an old replica set, waiting until that has no pods", newRS.Name)
		}
		return nil, nil
	}
	// A counted one may be there and the cache not know it yet.
	if existing, err := dc.findWithPods(deployment); err != nil {
		return nil, dc.tryAgain(deployment, err)
	} else if existing != nil {
		return dc.adopt(deployment, existing, revision)
	}

	moved, err := dc.copyToCountedName(deployment, holder, deploymentutil.CollisionCount(live))
	if err != nil {
		return nil, dc.tryAgain(deployment, err)
	}
	replicaSets := dc.client.Extensions().ReplicaSets(holder.Namespace)
	if err := replicaSets.Delete(holder.Name, nil); err != nil && !errors.IsNotFound(err) {
		return nil, dc.tryAgain(deployment, fmt.Errorf("error deleting replica set %s, which was copied to %s: %v", holder.Name, moved, err))
	}
	movedSets.Inc()
	created, err := replicaSets.Create(newRS)
	if err != nil {
		return nil, dc.tryAgain(deployment, fmt.Errorf("error creating replica set %s, whose name was made free: %v", newRS.Name, err))
	}
	glog.Warningf("Deployment %s/%s: replica set %s held another pod template with the same hash and had no pods; that is %s now, and %s the new one.", deployment.Namespace, deployment.Name, holder.Name, moved, created.Name)
	dc.eventRecorder.Eventf(deployment, api.EventTypeWarning, reasonNameCollision, "Replica set %q held another pod template with the same hash and had no pods; moved that to %q", holder.Name, moved)
	dc.announceScale(deployment, created)
	return created, dc.updateDeploymentRevision(deployment, revision)
}

// findWithPods finds the deployment's new replica set, under whichever name, at
// the API server. One that is counted and has no pods is not looked for: it
// comes home.
func (dc *DeploymentController) findWithPods(deployment *extensions.Deployment) (*extensions.ReplicaSet, error) {
	rss, err := deploymentutil.ListReplicaSets(deployment, func(namespace string, options api.ListOptions) ([]extensions.ReplicaSet, error) {
		list, err := dc.client.Extensions().ReplicaSets(namespace).List(options)
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	})
	if err != nil {
		return nil, fmt.Errorf("error listing replica sets of deployment %s: %v", deployment.Name, err)
	}
	var found []extensions.ReplicaSet
	for i := range rss {
		if deploymentutil.IsCounted(deployment, &rss[i]) {
			empty, err := dc.hasNoPods(&rss[i])
			if err != nil {
				return nil, err
			}
			if empty {
				continue
			}
		}
		found = append(found, rss[i])
	}
	return deploymentutil.FindNewReplicaSet(deployment, found)
}

// copyToCountedName makes a replica set of rs's template, annotations and
// labels under a counted name, scaled to 0, and returns the name. One that is
// there already, from a controller that was stopped, will do.
func (dc *DeploymentController) copyToCountedName(deployment *extensions.Deployment, rs *extensions.ReplicaSet, count int) (string, error) {
	key := extensions.DefaultDeploymentUniqueLabelKey
	template := rs.Spec.Template
	template.Labels = labelsutil.CloneAndRemoveLabel(template.Labels, key)
	if count < 1 {
		count = 1
	}
	for last := count + maxUnsavedNames - 1; count <= last; count++ {
		hash := podutil.GetPodTemplateSpecHashWithCount(template, count)
		copied := &extensions.ReplicaSet{
			ObjectMeta: api.ObjectMeta{
				Name:        nameOf(deployment, hash),
				Namespace:   rs.Namespace,
				Labels:      labelsutil.CloneAndAddLabel(rs.Labels, key, hash),
				Annotations: rs.Annotations,
			},
			Spec: extensions.ReplicaSetSpec{
				Selector: labelsutil.CloneSelectorAndAddLabel(rs.Spec.Selector, key, hash),
				Template: template,
			},
		}
		copied.Spec.Template.Labels = labelsutil.CloneAndAddLabel(template.Labels, key, hash)
		_, err := dc.client.Extensions().ReplicaSets(rs.Namespace).Create(copied)
		if err == nil {
			return copied.Name, nil
		}
		if !errors.IsAlreadyExists(err) {
			return "", fmt.Errorf("error copying replica set %s to %s: %v", rs.Name, copied.Name, err)
		}
		existing, err := dc.client.Extensions().ReplicaSets(rs.Namespace).Get(copied.Name)
		if err != nil {
			return "", fmt.Errorf("replica set %s exists already but cannot be read: %v", copied.Name, err)
		}
		if api.Semantic.DeepEqual(existing.Spec.Template, copied.Spec.Template) && api.Semantic.DeepEqual(existing.Spec.Selector, copied.Spec.Selector) {
			return copied.Name, nil
		}
	}
	return "", fmt.Errorf("no free name to move replica set %s to, up to collision count %d", rs.Name, count-1)
}

// unlessComingHome returns rs, the deployment's new replica set that was found
// among rss, or nil if it is to be made anew under its computed name: it has a
// counted one and no pods, the deployment wants pods, and the computed name is
// free or will be. One with pods is never touched. If rs has its computed name,
// what a counted one of the same template has left is deleted.
func (dc *DeploymentController) unlessComingHome(deployment *extensions.Deployment, rs *extensions.ReplicaSet, rss []extensions.ReplicaSet) (*extensions.ReplicaSet, error) {
	if rs == nil || !features.Enabled(features.HashCollision) || deployment.Spec.Paused || deployment.Spec.RollbackTo != nil || deployment.Spec.Replicas == 0 {
		return rs, nil
	}
	hash := podutil.GetPodTemplateSpecHash(deployment.Spec.Template)
	computed := nameOf(deployment, hash)
	if rs.Name == computed {
		dc.deleteCountedTwins(deployment, rs, rss)
		return rs, nil
	}
	if rs.Spec.Replicas != 0 || rs.Status.Replicas != 0 || !deploymentutil.IsCounted(deployment, rs) {
		return rs, nil
	}
	replicaSets := dc.client.Extensions().ReplicaSets(rs.Namespace)
	live, err := replicaSets.Get(rs.Name)
	if errors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, dc.tryAgain(deployment, fmt.Errorf("error getting replica set %s: %v", rs.Name, err))
	}
	if empty, err := dc.hasNoPods(live); err != nil {
		return nil, dc.tryAgain(deployment, err)
	} else if !empty {
		return rs, nil
	}

	holder, err := replicaSets.Get(computed)
	if errors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, dc.tryAgain(deployment, fmt.Errorf("error getting replica set %s: %v", computed, err))
	}
	held, err := whose(deployment, holder)
	if err != nil {
		return nil, dc.tryAgain(deployment, err)
	}
	switch held {
	case holderOwn:
		return nil, nil // the cache is behind
	case holderForeign:
		return rs, nil
	}
	if !isMovable(holder, strconv.FormatUint(uint64(hash), 10)) {
		return rs, nil
	}
	if isRecreate(deployment) {
		return nil, nil // the old ones are scaled down first, this one among them
	}
	empty, err := dc.hasNoPods(holder)
	if err != nil {
		return nil, dc.tryAgain(deployment, err)
	}
	if !empty {
		return rs, nil
	}
	return nil, nil
}

// deleteCountedTwins deletes the replica sets among rss that have the template
// of rs, a counted name and no pods. They are left when rs was made under its
// computed name; that the deployment has one revision twice harms nothing, so
// what fails is left for the next sync.
func (dc *DeploymentController) deleteCountedTwins(deployment *extensions.Deployment, rs *extensions.ReplicaSet, rss []extensions.ReplicaSet) {
	for i := range rss {
		twin := &rss[i]
		if twin.Name == rs.Name || twin.Spec.Replicas != 0 || twin.Status.Replicas != 0 || !deploymentutil.IsCounted(deployment, twin) {
			continue
		}
		live, err := dc.client.Extensions().ReplicaSets(twin.Namespace).Get(twin.Name)
		if err != nil || live.UID != twin.UID {
			continue
		}
		if empty, err := dc.hasNoPods(live); err != nil || !empty {
			continue
		}
		glog.V(2).Infof("Deployment %s/%s: deleting replica set %s, which has no pods and the template of %s.", deployment.Namespace, deployment.Name, twin.Name, rs.Name)
		if err := dc.client.Extensions().ReplicaSets(twin.Namespace).Delete(twin.Name, nil); err != nil && !errors.IsNotFound(err) {
			glog.V(2).Infof("Failed deleting replica set %s of deployment %s: %v", twin.Name, deployment.Name, err)
		}
	}
}

// isReplaced reports whether the name of rs, an old replica set from the cache,
// now belongs to another one or may do: the one of the deployment's template,
// which took the name over. A delete is by name and would hit that one.
func (dc *DeploymentController) isReplaced(deployment *extensions.Deployment, rs *extensions.ReplicaSet) bool {
	if !features.Enabled(features.HashCollision) || rs.Name != nameOf(deployment, podutil.GetPodTemplateSpecHash(deployment.Spec.Template)) {
		return false
	}
	live, err := dc.client.Extensions().ReplicaSets(rs.Namespace).Get(rs.Name)
	return err != nil || live.UID != rs.UID
}
