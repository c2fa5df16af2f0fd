// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	"k8s.io/kubernetes/pkg/kubelet/util/format"
)

// keptReadiness remembers the containers that were running when this process
// first looked at their pod, and for which no probe of this process has had a
// result yet. For these, and for no others, the readiness is the published one.
//
// A container goes through
//
//	first look     the pod's status as the kubelet got it (for a static pod its
//	               mirror pod's, which may come later) says whether it was ready;
//	first publish  the status manager has read the pod from the API server, so
//	               that a stale list can be corrected; done once;
//	first result   the results manager knows more than we do.
//
// The zero value is ready to use.
type keptReadiness struct {
	sync.Mutex
	pods map[types.UID]map[kubecontainer.ContainerID]*keptContainer
}

type keptContainer struct {
	startedAt time.Time
	// stock is set for a container whose readiness is not kept, whatever was
	// published. It is not ready until its probe succeeds, also in its first sync,
	// which may come before the probe worker is there.
	stock bool
	// known is false as long as no published status was seen (no mirror pod yet).
	known bool
	ready bool
	// settled is set by the comparison with the API server's own copy.
	settled bool
}

var (
	readinessKept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_readiness_across_restart_kept_total",
		Help: "Containers whose published readiness was kept after a restart of the kubelet.",
	})
	readinessWithdrawn = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_readiness_across_restart_withdrawn_total",
		Help: "Kept readiness that was given up because the API server said otherwise when the first status was published.",
	})
	readinessWouldKeep = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_readiness_across_restart_would_keep_total",
		Help: "Containers made not ready after a restart of the kubelet because the gate ReadinessAcrossRestart is off.",
	})
)

func init() {
	prometheus.MustRegister(readinessKept, readinessWithdrawn, readinessWouldKeep)
}

// ContainerStopper is a container runtime that can say which containers the next
// sync of a pod is going to stop. SyncPod and it decide with the same function.
type ContainerStopper interface {
	ContainersToStop(pod *v1.Pod, podStatus *kubecontainer.PodStatus) func(kubecontainer.ContainerID) bool
}

// KeepReadiness is called before every UpdatePodStatus of the pod. m and runtime
// may be of any type; if they are not ours nothing is kept.
func KeepReadiness(m Manager, runtime interface{}, podManager kubepod.Manager, pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	if m, ok := m.(*manager); ok {
		if stopper, ok := runtime.(ContainerStopper); ok {
			m.keepReadiness(stopper, podManager, pod, podStatus)
		}
	}
}

func (m *manager) keepReadiness(stopper ContainerStopper, podManager kubepod.Manager, pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	published := &pod.Status
	if kubepod.IsStaticPod(pod) {
		published = nil
		if mirrorPod, ok := podManager.GetMirrorPodByPod(pod); ok {
			published = &mirrorPod.Status
		}
	}

	m.kept.Lock()
	defer m.kept.Unlock()
	containers, seen := m.kept.pods[pod.UID]
	if !seen {
		containers = runningWithReadinessProbe(pod, podStatus)
		for id, c := range containers {
			if _, probed := m.readinessManager.Get(id); probed {
				delete(containers, id)
			}
			// A pod that is being deleted is judged as upstream does.
			c.stock = pod.DeletionTimestamp != nil
		}
		if len(containers) > 0 && pod.DeletionTimestamp == nil {
			// And so is a container that is about to go because of what happened
			// while no kubelet was there.
			stops := stopper.ContainersToStop(pod, podStatus)
			for id, c := range containers {
				c.stock = stops(id)
			}
		}
		if m.kept.pods == nil {
			m.kept.pods = map[types.UID]map[kubecontainer.ContainerID]*keptContainer{}
		}
		m.kept.pods[pod.UID] = containers
		if s, ok := m.statusManager.(status.ReadinessKeeping); ok && len(containers) > 0 {
			s.SetReadinessKeeper(m)
		}
	}

	enabled := utilfeature.DefaultFeatureGate.Enabled(features.ReadinessAcrossRestart)
	for id, c := range containers {
		if _, probed := m.readinessManager.Get(id); probed {
			delete(containers, id)
		}
		if c.known || c.stock || published == nil {
			continue
		}
		c.known, c.ready = true, publishedReady(published, id.String(), c.startedAt)
		switch {
		case c.ready && enabled:
			readinessKept.Inc()
			glog.Infof("Keeping the published readiness of container %q of pod %q until its first probe result", id.String(), format.Pod(pod))
		case c.ready:
			readinessWouldKeep.Inc()
		}
	}
	if !enabled {
		// Nothing but the mark that the pod was seen stays.
		for id, c := range containers {
			if c.known || c.stock || !kubepod.IsStaticPod(pod) {
				delete(containers, id)
			}
		}
	}
}

// runningWithReadinessProbe returns the pod's running containers that have a
// readiness probe.
func runningWithReadinessProbe(pod *v1.Pod, podStatus *kubecontainer.PodStatus) map[kubecontainer.ContainerID]*keptContainer {
	containers := map[kubecontainer.ContainerID]*keptContainer{}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].ReadinessProbe == nil {
			continue
		}
		cs := podStatus.FindContainerStatusByName(pod.Spec.Containers[i].Name)
		if cs != nil && cs.State == kubecontainer.ContainerStateRunning {
			containers[cs.ID] = &keptContainer{startedAt: cs.StartedAt}
		}
	}
	return containers
}

// publishedReady says whether the status that the API server has makes the
// container, in the run that began at startedAt, ready.
//
// A pod whose containers are all ready while its Ready condition is not true was
// marked by somebody else: the node controller does so when it has not heard of
// the node for some time. Then the readiness is as old as that, and does not count.
func publishedReady(published *v1.PodStatus, containerID string, startedAt time.Time) bool {
	ready, allReady := false, true
	for i := range published.ContainerStatuses {
		c := &published.ContainerStatuses[i]
		allReady = allReady && c.Ready
		if c.ContainerID == containerID && c.Ready && c.State.Running != nil {
			// The API has whole seconds.
			began := metav1.NewTime(startedAt).Rfc3339Copy()
			ready = c.State.Running.StartedAt.Rfc3339Copy().Time.Equal(began.Time)
		}
	}
	return ready && (podutil.IsPodReadyConditionTrue(*published) || !allReady)
}

// unprobedReady is the readiness of a running container for which there is no
// probe result. noWorker is upstream's answer: a container without a readiness
// probe is ready.
func (m *manager) unprobedReady(podUID types.UID, containerID string, noWorker bool) bool {
	m.kept.Lock()
	defer m.kept.Unlock()
	if c, ok := m.kept.container(podUID, kubecontainer.ParseContainerID(containerID)); ok {
		return c.ready
	}
	return noWorker
}

// container returns what is kept of the container. The lock is held, and the gate
// is on if it returns something.
func (k *keptReadiness) container(podUID types.UID, id kubecontainer.ContainerID) (*keptContainer, bool) {
	c, ok := k.pods[podUID][id]
	if ok && !utilfeature.DefaultFeatureGate.Enabled(features.ReadinessAcrossRestart) {
		return nil, false
	}
	return c, ok
}

// setInitialResult is called when the worker sees a container for the first
// time. A kept container has no result until its probe gives one.
func (w *worker) setInitialResult() {
	if w.probeType == readiness {
		w.probeManager.kept.Lock()
		c, ok := w.probeManager.kept.container(w.pod.UID, w.containerID)
		kept := ok && !c.stock
		w.probeManager.kept.Unlock()
		if kept {
			return
		}
	}
	w.resultsManager.Set(w.containerID, w.initialValue, w.pod)
}

// forget drops what is known of pods that are not active any more.
func (k *keptReadiness) forget(active map[types.UID]sets.Empty) {
	k.Lock()
	defer k.Unlock()
	for uid := range k.pods {
		if _, ok := active[uid]; !ok {
			delete(k.pods, uid)
		}
	}
}

// SettleReadiness implements status.ReadinessKeeper. published is the API
// server's own copy of the status that is about to be replaced.
func (m *manager) SettleReadiness(podUID types.UID, published *v1.PodStatus) map[kubecontainer.ContainerID]bool {
	m.kept.Lock()
	defer m.kept.Unlock()
	settled := map[kubecontainer.ContainerID]bool{}
	for id := range m.kept.pods[podUID] {
		c, ok := m.kept.container(podUID, id)
		if !ok || c.stock || c.settled {
			continue
		}
		if _, probed := m.readinessManager.Get(id); probed {
			continue
		}
		was := c.known && c.ready
		c.known, c.settled = true, true
		c.ready = publishedReady(published, id.String(), c.startedAt)
		switch {
		case c.ready && !was:
			readinessKept.Inc()
			glog.Infof("Keeping the published readiness of container %q of pod with UID %q until its first probe result", id.String(), podUID)
		case was && !c.ready:
			readinessWithdrawn.Inc()
			glog.Warningf("Not keeping the readiness of container %q of pod with UID %q: it is not ready for the API server", id.String(), podUID)
		}
		settled[id] = c.ready
	}
	return settled
}

// ProbedReadiness implements status.ReadinessKeeper.
func (m *manager) ProbedReadiness(id kubecontainer.ContainerID) (ready, probed bool) {
	result, probed := m.readinessManager.Get(id)
	return result == results.Success, probed
}
