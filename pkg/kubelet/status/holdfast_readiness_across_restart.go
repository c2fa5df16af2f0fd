// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// ReadinessKeeper knows the containers whose readiness was published by an
// earlier process of the kubelet and not yet probed by this one.
type ReadinessKeeper interface {
	// SettleReadiness tells the keeper what the API server has published. It
	// returns the readiness of each container that it keeps and has not settled
	// before; later calls do not return that container again.
	SettleReadiness(podUID types.UID, published *v1.PodStatus) map[kubecontainer.ContainerID]bool
	// ProbedReadiness returns the result of the container's readiness probe, if
	// there is one.
	ProbedReadiness(kubecontainer.ContainerID) (ready, probed bool)
}

// ReadinessKeeping is the part of a Manager that asks a keeper before it publishes.
type ReadinessKeeping interface {
	// SetReadinessKeeper sets the keeper that is asked from now on.
	SetReadinessKeeper(ReadinessKeeper)
}

// SetReadinessKeeper implements ReadinessKeeping.
func (m *manager) SetReadinessKeeper(k ReadinessKeeper) {
	m.podStatusesLock.Lock()
	defer m.podStatusesLock.Unlock()
	m.readinessKeeper = k
}

// resettle compares the readiness in the status that is about to be published
// with published, the API server's copy that has just been read. It reports true
// if they differ for a container whose readiness is only kept; then the status
// is put right and queued again, and the caller must not publish this one.
func (m *manager) resettle(uid types.UID, published *v1.PodStatus, status *v1.PodStatus) bool {
	m.podStatusesLock.RLock()
	keeper := m.readinessKeeper
	m.podStatusesLock.RUnlock()
	if keeper == nil {
		return false
	}
	differs := false
	for id, ready := range keeper.SettleReadiness(uid, published) {
		if probed, ok := keeper.ProbedReadiness(id); ok {
			ready = probed
		} else {
			m.noteSettled(uid, id, ready)
		}
		c, init, ok := findContainerStatus(status, id.String())
		if !ok || init || c.State.Running == nil || c.Ready == ready {
			continue
		}
		m.SetContainerReadiness(uid, id, ready)
		// A result that came in between must have the last word.
		if probed, ok := keeper.ProbedReadiness(id); ok && probed != ready {
			m.SetContainerReadiness(uid, id, probed)
		}
		// Who holds the container at not ready has the very last one. Then there is no
		// newer status, and this one must not wait for it.
		if cached, ok := m.GetPodStatus(uid); ok {
			now, _, ok := findContainerStatus(&cached, id.String())
			differs = differs || !ok || now.Ready != c.Ready
		}
	}
	return differs
}

// noteSettled notes how a container's readiness was settled, for the statuses that were made
// before. Only the first status after a start settles something, so what is noted is bounded
// by the containers that ran then; it is dropped with a probe's result or, when the next pod
// is settled, with the pod's status.
func (m *manager) noteSettled(uid types.UID, id kubecontainer.ContainerID, ready bool) {
	m.podStatusesLock.Lock()
	defer m.podStatusesLock.Unlock()
	for other := range m.settledReadiness {
		if _, ok := m.podStatuses[other]; !ok {
			delete(m.settledReadiness, other)
		}
	}
	if m.settledReadiness == nil {
		m.settledReadiness = map[types.UID]map[kubecontainer.ContainerID]bool{}
	}
	if m.settledReadiness[uid] == nil {
		m.settledReadiness[uid] = map[kubecontainer.ContainerID]bool{}
	}
	m.settledReadiness[uid][id] = ready
}

// keepSettled puts right a status that is about to be cached, and may have been made before
// the readiness of its containers was settled: as long as no probe has had a result, that
// is as it was settled. podStatusesLock is held.
func (m *manager) keepSettled(pod *v1.Pod, status *v1.PodStatus) {
	settled, changed := m.settledReadiness[pod.UID], false
	for id, ready := range settled {
		c, init, ok := findContainerStatus(status, id.String())
		if _, probed := m.readinessKeeper.ProbedReadiness(id); probed || !ok || init || c.State.Running == nil {
			delete(settled, id)
		} else if c.Ready != ready {
			c.Ready, changed = ready, true
		}
	}
	if len(settled) == 0 {
		delete(m.settledReadiness, pod.UID)
	}
	if changed {
		updateReadyCondition(pod, status)
	}
}
