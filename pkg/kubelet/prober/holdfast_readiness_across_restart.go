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
	"k8s.io/apimachinery/pkg/util/clock"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/util/format"
)

// ReadinessKeeping is the part of a Manager that keeps the published readiness of
// containers that outlived a restart of the kubelet.
type ReadinessKeeping interface {
	// StartKeepingReadiness is called once, before the first pod is synced. Until
	// then, and with the gate off, nothing is kept, looked at or asked.
	StartKeepingReadiness(ReadinessSources)
	// KeepReadiness is called before every UpdatePodStatus of the pod.
	KeepReadiness(pod *v1.Pod, podStatus *kubecontainer.PodStatus)
}

// ReadinessSources is where a Manager learns what it must know to keep readiness.
type ReadinessSources struct {
	// Runtime must be a ContainerStopper, else nothing is kept.
	Runtime kubecontainer.Runtime
	// Pods knows the mirror pods.
	Pods kubepod.Manager
	// PodDir is the folder of a pod below the kubelet's root directory. Every
	// release removes it with the pod.
	PodDir func(types.UID) string
	// HeartbeatAge is how old the Node's last heartbeat was before this process
	// wrote one, false if it had none or cannot be read. It may ask the API server.
	HeartbeatAge func() (time.Duration, bool)
	// MaxHeartbeatAge is the age from which on the API server's copy of a pod's
	// status is too old to be kept.
	MaxHeartbeatAge time.Duration
	Clock           clock.Clock
}

// ContainerStopper is a container runtime that can say which containers the next
// sync of a pod is going to stop. SyncPod and it decide with the same function.
type ContainerStopper interface {
	ContainersToStop(pod *v1.Pod, podStatus *kubecontainer.PodStatus) func(kubecontainer.ContainerID) bool
}

// keptReadiness remembers the containers that were running when this process
// first looked at their pod, and for which no probe of this process has had a
// result yet. For these, and for no others, the readiness is the published one.
//
// The zero value keeps nothing.
type keptReadiness struct {
	sync.Mutex
	ReadinessSources
	// stopper is ReadinessSources.Runtime; nil if nothing is kept.
	stopper ContainerStopper
	pods    map[types.UID]map[kubecontainer.ContainerID]*keptContainer
}

// keptState is how far the readiness of a container is decided:
//
//	first look     the pod's status as the kubelet got it (for a static pod its
//	               mirror pod's, which may come later) says whether it was ready;
//	first publish  the status manager has read the pod from the API server, so
//	               that a stale list can be corrected; done once;
//	first result   the results manager knows more than we do.
type keptState int

const (
	// unpublished: no published status was seen yet (no mirror pod). Not ready.
	unpublished keptState = iota
	// given: the status that the kubelet got when it started said if it is ready.
	given
	// settled: the API server's own copy said if it is ready.
	settled
	// asUpstream: not kept, whatever was published. It is not ready until its probe
	// succeeds, also in its first sync, which may come before the probe worker is
	// there.
	asUpstream
)

type keptContainer struct {
	pod       *v1.Pod
	name      string
	startedAt time.Time
	state     keptState
	// ready is what is kept. It is false in unpublished and asUpstream.
	ready bool
	// confirmed: a probe of this process has succeeded, though perhaps not as often
	// as its successThreshold asks. What is kept has no end then.
	confirmed bool
	// bounded is closed when the time of what is kept need not run out any more; nil if
	// it does not run.
	bounded chan struct{}
	// record is what earlier processes left, and then what this one wrote; nil if
	// there is none.
	record *keptRecord
}

var (
	readinessKept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_readiness_across_restart_kept_total",
		Help: "Containers whose published readiness was kept after a restart of the kubelet.",
	})
	readinessWithdrawn = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_readiness_across_restart_withdrawn_total",
		Help: "Kept readiness that was given up because the API server said otherwise, or nothing recent enough, when the first status was published.",
	})
	readinessExpired = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_readiness_across_restart_expired_total",
		Help: "Kept readiness that ended, or was not kept again, because no probe had confirmed it in time.",
	})
)

func init() {
	prometheus.MustRegister(readinessKept, readinessWithdrawn, readinessExpired)
}

// StartKeepingReadiness implements ReadinessKeeping.
func (m *manager) StartKeepingReadiness(sources ReadinessSources) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ReadinessAcrossRestart) {
		return
	}
	stopper, ok := sources.Runtime.(ContainerStopper)
	if !ok {
		glog.Warningf("No readiness is kept across restarts of the kubelet: the container runtime %T cannot say which containers its next sync stops", sources.Runtime)
		return
	}
	m.kept.Lock()
	m.kept.ReadinessSources, m.kept.stopper = sources, stopper
	m.kept.Unlock()
	m.statusManager.SetReadinessKeeper(m)
}

// KeepReadiness implements ReadinessKeeping.
func (m *manager) KeepReadiness(pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	if m.kept.stopper == nil || !utilfeature.DefaultFeatureGate.Enabled(features.ReadinessAcrossRestart) {
		return
	}
	published := &pod.Status
	if kubepod.IsStaticPod(pod) {
		published = nil
		if mirrorPod, ok := m.kept.Pods.GetMirrorPodByPod(pod); ok {
			published = &mirrorPod.Status
		}
	}
	var found map[kubecontainer.ContainerID]*keptContainer
	if !m.kept.seen(pod.UID) {
		found = m.firstLook(pod, podStatus) // asks the runtime, so without the lock
	}

	m.kept.Lock()
	defer m.kept.Unlock()
	containers, seen := m.kept.pods[pod.UID]
	if !seen {
		if m.kept.pods == nil {
			m.kept.pods = map[types.UID]map[kubecontainer.ContainerID]*keptContainer{}
		}
		m.kept.pods[pod.UID], containers = found, found
	}
	for id, c := range containers {
		if _, probed := m.readinessManager.Get(id); probed {
			// Known by its result. One with a record waits for a success, see confirm.
			c.state, c.ready = asUpstream, false
			c.endBound()
			if c.record == nil {
				delete(containers, id)
			}
		}
		if c.state == unpublished && published != nil {
			m.judge(id, c, given, publishedReady(published, id.String(), c.startedAt))
		}
	}
}

func (k *keptReadiness) seen(podUID types.UID) bool {
	k.Lock()
	defer k.Unlock()
	_, seen := k.pods[podUID]
	return seen
}

// firstLook returns the pod's running containers that have a readiness probe and
// no result of it yet.
func (m *manager) firstLook(pod *v1.Pod, podStatus *kubecontainer.PodStatus) map[kubecontainer.ContainerID]*keptContainer {
	containers := map[kubecontainer.ContainerID]*keptContainer{}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		cs := podStatus.FindContainerStatusByName(name)
		if pod.Spec.Containers[i].ReadinessProbe == nil || cs == nil || cs.State != kubecontainer.ContainerStateRunning {
			continue
		}
		if _, probed := m.readinessManager.Get(cs.ID); !probed {
			containers[cs.ID] = &keptContainer{pod: pod, name: name, startedAt: cs.StartedAt}
		}
	}
	if len(containers) == 0 {
		return containers
	}
	// A pod that is being deleted is judged as upstream does, and so is a container
	// that is about to go because of what happened while no kubelet was there.
	stops := func(kubecontainer.ContainerID) bool { return true }
	if pod.DeletionTimestamp == nil {
		stops = m.kept.stopper.ContainersToStop(pod, podStatus)
	}
	for id, c := range containers {
		if stops(id) {
			c.state = asUpstream
		} else {
			c.record = m.kept.readRecord(id, c)
		}
	}
	return containers
}

// judge notes what a published status says of a container: that of the kubelet's
// first list, or the API server's own copy. The lock is held, the gate is on.
func (m *manager) judge(id kubecontainer.ContainerID, c *keptContainer, state keptState, ready bool) {
	was := c.ready
	c.state, c.ready = state, ready
	switch {
	case ready && !was:
		if !c.confirmed && !m.begin(id, c) {
			c.state, c.ready = asUpstream, false
			return
		}
		readinessKept.Inc()
		glog.Infof("Keeping the published readiness of container %q of pod %q until its first probe result", id.String(), format.Pod(c.pod))
	case was && !ready:
		c.endBound()
		readinessWithdrawn.Inc()
		glog.Warningf("Not keeping the readiness of container %q of pod %q: it is not ready for the API server, or what that has is too old", id.String(), format.Pod(c.pod))
	}
}

// begin bounds what is kept. It reports false if the readiness may not be kept: no
// probe confirmed it in the time that it had, under this and earlier processes, or
// that time cannot be remembered. The lock is held.
func (m *manager) begin(id kubecontainer.ContainerID, c *keptContainer) bool {
	now := m.kept.Clock.Now()
	left, err := m.kept.writeRecord(id, c, now)
	if err != nil {
		glog.Errorf("Not keeping the readiness of container %q of pod %q: it cannot be noted since when: %v", id.String(), format.Pod(c.pod), err)
		return false
	}
	if left <= 0 {
		readinessExpired.Inc()
		glog.Warningf("Not keeping the readiness of container %q of pod %q: no probe has confirmed it since %v, under this and earlier processes of the kubelet",
			id.String(), format.Pod(c.pod), c.record.Since)
		return false
	}
	c.endBound()
	end, bounded := m.kept.Clock.NewTimer(left), make(chan struct{})
	c.bounded = bounded
	go func() {
		defer end.Stop()
		select {
		case <-end.C():
			m.expire(c.pod.UID, id)
		case <-bounded:
		}
	}()
	return true
}

// endBound ends the goroutine that waits for the bound, which may be 136 years. The lock is
// held.
func (c *keptContainer) endBound() {
	if c.bounded != nil {
		close(c.bounded)
		c.bounded = nil
	}
}

// expire ends what is kept of a container if no probe has confirmed it: it is not
// ready until its probe succeeds, as if it had not been kept.
func (m *manager) expire(podUID types.UID, id kubecontainer.ContainerID) {
	m.kept.Lock()
	defer m.kept.Unlock()
	c, ok := m.kept.pods[podUID][id]
	if !ok || !c.ready || c.confirmed {
		return
	}
	c.state, c.ready = asUpstream, false
	if _, probed := m.readinessManager.Get(id); probed {
		return
	}
	readinessExpired.Inc()
	glog.Warningf("Giving up the readiness of container %q of pod %q: no probe has confirmed it for %v", id.String(), format.Pod(c.pod), c.bound())
	// Under the lock, so that it cannot follow the success that confirm announces.
	m.readinessManager.Set(id, results.Failure, c.pod)
}

// confirmReadiness is called with every result of a probe that ran. A success ends
// the bound: from here on the readiness is as that of a kubelet that kept running.
// A failure does not: it counts from its failureThreshold, and that fits the bound.
func (w *worker) confirmReadiness(result results.Result) {
	if w.probeType == readiness && result == results.Success {
		w.probeManager.kept.confirm(w.pod.UID, w.containerID)
	}
}

func (k *keptReadiness) confirm(podUID types.UID, id kubecontainer.ContainerID) {
	k.Lock()
	defer k.Unlock()
	c, ok := k.pods[podUID][id]
	if !ok || c.confirmed {
		return
	}
	c.confirmed = true
	c.endBound()
	if c.record != nil {
		k.removeRecord(c)
	}
}

const (
	// minBoundSeconds is the node controller's own patience with a node that it does
	// not hear of. The first probes after a restart are slow, as all begin at once: a
	// probe with a period of a second would else lose its readiness before it runs.
	minBoundSeconds = 40
	// maxBoundSeconds keeps a failureThreshold that means "never" within a Duration.
	maxBoundSeconds = 1 << 32
)

// bound is how long the readiness is kept if no probe succeeds. A probe that works
// has its result within that: it waits for initialDelaySeconds and a random part of
// its period, and then needs failureThreshold periods, or timeouts where these are
// longer: no probe begins before the one before has ended.
func (c *keptContainer) bound() time.Duration {
	for i := range c.pod.Spec.Containers {
		if p := c.pod.Spec.Containers[i].ReadinessProbe; p != nil && c.pod.Spec.Containers[i].Name == c.name {
			period, timeout := int64(p.PeriodSeconds), int64(p.TimeoutSeconds)
			each := period
			if timeout > each {
				each = timeout
			}
			seconds := int64(p.FailureThreshold)*each + period + timeout + int64(p.InitialDelaySeconds)
			if seconds < minBoundSeconds {
				seconds = minBoundSeconds
			}
			if seconds > maxBoundSeconds {
				seconds = maxBoundSeconds
			}
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
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
	if c, ok := m.kept.pods[podUID][kubecontainer.ParseContainerID(containerID)]; ok {
		return c.ready
	}
	return noWorker
}

// setInitialResult is called when the worker sees a container for the first
// time. A kept container has no result until its probe gives one.
func (w *worker) setInitialResult() {
	if w.probeType == readiness {
		w.probeManager.kept.Lock()
		w.probeManager.kept.replaced(w.pod.UID, w.container.Name, w.containerID)
		c, ok := w.probeManager.kept.pods[w.pod.UID][w.containerID]
		kept := ok && c.state != asUpstream
		w.probeManager.kept.Unlock()
		if kept {
			return
		}
	}
	w.resultsManager.Set(w.containerID, w.initialValue, w.pod)
}

// replaced drops what is known of a container that another one has followed: nothing of
// it can be confirmed any more, and its time must not run out. The lock is held.
func (k *keptReadiness) replaced(podUID types.UID, name string, by kubecontainer.ContainerID) {
	for id, c := range k.pods[podUID] {
		if c.name != name || id == by {
			continue
		}
		delete(k.pods[podUID], id)
		c.endBound()
		if c.record != nil {
			k.removeRecord(c)
		}
	}
}

// forget drops what is known of pods that are not active any more.
func (k *keptReadiness) forget(active map[types.UID]sets.Empty) {
	k.Lock()
	defer k.Unlock()
	for uid := range k.pods {
		if _, ok := active[uid]; !ok {
			for _, c := range k.pods[uid] {
				c.endBound()
			}
			delete(k.pods, uid)
		}
	}
}

// SettleReadiness implements status.ReadinessKeeper. published is the API
// server's own copy of the status that is about to be replaced.
func (m *manager) SettleReadiness(podUID types.UID, published *v1.PodStatus) map[kubecontainer.ContainerID]bool {
	if len(m.unsettled(podUID)) == 0 {
		return nil
	}
	recent := m.publishedRecently() // may ask the API server, so without the lock
	m.kept.Lock()
	defer m.kept.Unlock()
	readiness := map[kubecontainer.ContainerID]bool{}
	for id, c := range m.unsettledLocked(podUID) {
		m.judge(id, c, settled, recent && publishedReady(published, id.String(), c.startedAt))
		readiness[id] = c.ready
	}
	return readiness
}

func (m *manager) unsettled(podUID types.UID) map[kubecontainer.ContainerID]*keptContainer {
	m.kept.Lock()
	defer m.kept.Unlock()
	return m.unsettledLocked(podUID)
}

// unsettledLocked returns the pod's containers that are to be compared with the
// API server's copy. The lock is held.
func (m *manager) unsettledLocked(podUID types.UID) map[kubecontainer.ContainerID]*keptContainer {
	containers := map[kubecontainer.ContainerID]*keptContainer{}
	for id, c := range m.kept.pods[podUID] {
		if c.state == unpublished || c.state == given {
			if _, probed := m.readinessManager.Get(id); !probed {
				containers[id] = c
			}
		}
	}
	return containers
}

// publishedRecently says whether a kubelet was there to keep the API server's copy
// right until shortly before this process began. If there is a controller manager
// it has marked the pods of a node that was away; without one the Node tells.
func (m *manager) publishedRecently() bool {
	age, ok := m.kept.HeartbeatAge()
	if !ok {
		return false
	}
	// A time in the future says as little as one long ago: the clock was set.
	return age <= m.kept.MaxHeartbeatAge && age >= -m.kept.MaxHeartbeatAge
}

// ProbedReadiness implements status.ReadinessKeeper.
func (m *manager) ProbedReadiness(id kubecontainer.ContainerID) (ready, probed bool) {
	result, probed := m.readinessManager.Get(id)
	return result == results.Success, probed
}
