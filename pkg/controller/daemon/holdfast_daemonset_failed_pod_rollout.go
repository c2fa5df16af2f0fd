// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"sync"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/kubernetes/pkg/features"
)

// A node that fails the pod of a DaemonSet again and again stops the rolling update of all
// others, in two ways. It is unavailable, so with maxUnavailable 1 no other pod may go. And a
// sync that deletes a failed pod does nothing else, so where several nodes fail their pods,
// hardly a sync is left that updates (kubernetes/kubernetes#63465, #78170).

// failedNodes remembers which nodes fail the pods of a DaemonSet. It tells a node that failed
// before an update from one whose pod was available until the update deleted it: the latter
// uses up maxUnavailable, as it may be the template's fault, and the former does not.
type failedNodes struct {
	lock sync.Mutex
	// sets has the DaemonSets that have such nodes, by namespace/name.
	sets map[string]*failedNodesOfSet
}

type failedNodesOfSet struct {
	uid   types.UID
	nodes map[string]failedNode
}

type failedNode struct {
	// generation is the template generation of the first pod that was seen to fail since the
	// node had an available one.
	generation int64
	// taken is the name of the available pod that an update deleted, and empty if none did.
	taken string
}

// of returns what is remembered of ds, and nil if that is nothing. The lock is held.
func (f *failedNodes) of(ds *daemonSet) map[string]failedNode {
	key, err := controller.KeyFunc(ds)
	if set := f.sets[key]; err == nil && set != nil && set.uid == ds.UID {
		return set.nodes
	}
	return nil
}

// set remembers nodes of ds, and nothing of another DaemonSet of its name. The lock is held.
func (f *failedNodes) set(ds *daemonSet, nodes map[string]failedNode) {
	key, err := controller.KeyFunc(ds)
	if err != nil || len(nodes) == 0 {
		delete(f.sets, key)
		return
	}
	if f.sets == nil {
		f.sets = map[string]*failedNodesOfSet{}
	}
	f.sets[key] = &failedNodesOfSet{uid: ds.UID, nodes: nodes}
}

// forget is called when the DaemonSet of that key is gone.
func (f *failedNodes) forget(key string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.sets, key)
}

// take is called before an update deletes pod, which is available.
func (f *failedNodes) take(ds *daemonSet, pod *v1.Pod) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DaemonSetFailedPodRollout) {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	nodes := f.of(ds)
	if nodes == nil {
		nodes = map[string]failedNode{}
	}
	nodes[pod.Spec.NodeName] = failedNode{taken: pod.Name}
	f.set(ds, nodes)
}

// spare is true if node failed pods of ds before its present template was there. Then it
// does not count as unavailable.
func (f *failedNodes) spare(ds *daemonSet, node string) bool {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DaemonSetFailedPodRollout) {
		return false
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	failed, ok := f.of(ds)[node]
	return ok && failed.taken == "" && failed.generation < templateGeneration(ds)
}

// observe looks at the pods of ds on nodes.
func (f *failedNodes) observe(ds *daemonSet, nodeToDaemonPods map[string][]*v1.Pod, hash string, nodes []*v1.Node) {
	f.lock.Lock()
	defer f.lock.Unlock()
	before, after := f.of(ds), map[string]failedNode{}
	for _, node := range nodes {
		failed, known := before[node.Name]
		for _, pod := range nodeToDaemonPods[node.Name] {
			switch {
			case pod.DeletionTimestamp != nil:
			case known && pod.Name != failed.taken && podutil.IsPodAvailable(pod, ds.Spec.MinReadySeconds, metav1.Now()):
				known = false
			case !known && pod.Status.Phase == v1.PodFailed:
				known, failed = true, failedNode{generation: templateGeneration(ds)}
				if !podUpdated(ds, pod, hash) {
					failed.generation--
				}
			}
		}
		if known {
			after[node.Name] = failed
		}
	}
	f.set(ds, after)
}

// updateBesideFailed adds to podsToDelete, which has failed pods, what a rolling update
// deletes now. The sync that deletes failed pods ends with an error, and before its deletions
// are observed there is no other.
func (dsc *DaemonSetsController) updateBesideFailed(ds *daemonSet, nodeToDaemonPods map[string][]*v1.Pod, hash string, nodes []*v1.Node, failedPods int, podsToDelete []string) []string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DaemonSetFailedPodRollout) {
		return podsToDelete
	}
	dsc.failedNodes.observe(ds, nodeToDaemonPods, hash, nodes)
	if failedPods == 0 || ds.Spec.UpdateStrategy.Type != rollingUpdateType {
		return podsToDelete
	}
	maxUnavailable, numUnavailable, err := dsc.getUnavailableNumbers(ds, nodeToDaemonPods)
	if err != nil {
		// The sync that updates only meets it too, and returns it.
		return podsToDelete
	}
	marked := sets.NewString(podsToDelete...)
	_, old := dsc.getAllDaemonSetPods(ds, nodeToDaemonPods, hash)
	available, unavailable := util.SplitByAvailablePods(ds.Spec.MinReadySeconds, old)
	for _, pod := range unavailable {
		if pod.DeletionTimestamp == nil && !marked.Has(pod.Name) {
			podsToDelete = append(podsToDelete, pod.Name)
		}
	}
	for _, pod := range available {
		if pod.DeletionTimestamp != nil || marked.Has(pod.Name) {
			continue
		}
		if numUnavailable >= maxUnavailable {
			break
		}
		dsc.failedNodes.take(ds, pod)
		podsToDelete = append(podsToDelete, pod.Name)
		numUnavailable++
	}
	return podsToDelete
}
