// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"fmt"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/features"
)

// The controller marks the pods of a dead node not ready in the one pass in which it makes
// the node's Ready condition Unknown. What fails in that pass, or is not done because the
// process ends, is never done: later passes find the condition Unknown already.

// maxDeadNodeRetry bounds how long a node whose pods could not be marked waits for the next
// try. The first retry is in the next pass.
const maxDeadNodeRetry = time.Minute

var (
	deadNodePodsMarked = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_dead_node_pods_retry_marked_total",
		Help: "Pods of unreachable nodes that were marked not ready by a later try than stock's only one.",
	})
	deadNodePodsFailed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_dead_node_pods_retry_failed_total",
		Help: "Tries to mark the pods of an unreachable node not ready that failed for at least one pod, and are made again.",
	})
)

func init() {
	prometheus.MustRegister(deadNodePodsMarked, deadNodePodsFailed)
}

// deadNode is what became of the pods of a node whose Ready condition is Unknown.
type deadNode struct {
	uid types.UID
	// done: all pods were marked not ready since the node became Unknown.
	done     bool
	failures uint
	// next is when the next try is due, unless it is done.
	next time.Time
}

// deadNode returns the entry of node. A new one makes room: nodes that are gone need none.
func (nc *Controller) deadNode(node *v1.Node) *deadNode {
	entry := nc.deadNodes[node.Name]
	if entry != nil && entry.uid == node.UID {
		return entry
	}
	for name := range nc.deadNodes {
		if _, err := nc.nodeLister.Get(name); apierrors.IsNotFound(err) {
			delete(nc.deadNodes, name)
		}
	}
	if nc.deadNodes == nil {
		nc.deadNodes = map[string]*deadNode{}
	}
	entry = &deadNode{uid: node.UID}
	nc.deadNodes[node.Name] = entry
	return entry
}

// markedPods takes down the result of a try to mark all pods of node not ready.
func (nc *Controller) markedPods(node *v1.Node, err error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DeadNodePodsRetry) {
		return
	}
	entry := nc.deadNode(node)
	entry.done = err == nil
	if err == nil {
		return
	}
	deadNodePodsFailed.Inc()
	delay := nc.nodeMonitorPeriod << entry.failures
	if delay >= maxDeadNodeRetry {
		delay = maxDeadNodeRetry
	} else {
		entry.failures++
	}
	entry.next = nc.now().Add(delay)
}

// markRemainingPods is called for every node in every pass, with the Ready condition that it
// has now. It marks the pods of an Unknown one not ready if that was not done since it became
// Unknown. A node that was Unknown before this process saw it has gracePeriod to report: its
// kubelet may have come back together with the control plane.
func (nc *Controller) markRemainingPods(node *v1.Node, ready *v1.NodeCondition, gracePeriod time.Duration) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DeadNodePodsRetry) {
		return
	}
	if ready.Status != v1.ConditionUnknown {
		delete(nc.deadNodes, node.Name)
		return
	}
	now := nc.now()
	entry := nc.deadNode(node)
	if entry.done || now.Time.Before(entry.next) || !now.After(nc.nodeStatusMap[node.Name].probeTimestamp.Add(gracePeriod)) {
		return
	}
	err := nc.markReadyPodsNotReady(node.Name)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("Unable to mark the remaining pods NotReady on node %v, trying again: %v", node.Name, err))
	}
	nc.markedPods(node, err)
}

// markReadyPodsNotReady does what util.MarkAllPodsNotReady does, for the pods that are not
// marked yet. The error has the first failure and the number of failures. A pod that is gone
// is none.
func (nc *Controller) markReadyPodsNotReady(nodeName string) error {
	pods, err := nc.kubeClient.CoreV1().Pods(metav1.NamespaceAll).List(metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(api.PodHostField, nodeName).String()})
	if err != nil {
		return err
	}
	failures := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		// The fake client selects no fields.
		if pod.Spec.NodeName != nodeName || !markNotReady(pod) {
			continue
		}
		_, updateErr := nc.kubeClient.CoreV1().Pods(pod.Namespace).UpdateStatus(pod)
		switch {
		case updateErr == nil:
			glog.V(2).Infof("Updated ready status of pod %s/%s on node %s to false", pod.Namespace, pod.Name, nodeName)
			deadNodePodsMarked.Inc()
		case !apierrors.IsNotFound(updateErr):
			failures++
			if err == nil {
				err = fmt.Errorf("pod %s/%s: %v", pod.Namespace, pod.Name, updateErr)
			}
		}
	}
	if failures > 1 {
		return fmt.Errorf("%v, and %d more", err, failures-1)
	}
	return err
}

// markNotReady makes the Ready condition of pod false, and says whether it was another.
func markNotReady(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodReady {
			was := c.Status
			c.Status = v1.ConditionFalse
			return was != v1.ConditionFalse
		}
	}
	return false
}
