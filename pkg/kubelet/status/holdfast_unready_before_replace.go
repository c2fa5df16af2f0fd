// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// UnreadyMarking is the part of a Manager that holds containers at not ready from the
// moment when the kubelet has decided to replace them. A mark is a container ID: no
// status of the pod, whoever makes it, has that container ready. It stands until it is
// lifted, or until the manager drops the pod's status.
type UnreadyMarking interface {
	// MarkUnready marks containers of the pod, makes them not ready, and has that
	// written without waiting for the kubelet's other requests. Marking again only takes
	// away the end of a mark. It marks nothing and returns false if there is no API
	// server, or no status of the pod.
	MarkUnready(pod *v1.Pod, ids []kubecontainer.ContainerID) bool
	// HoldUnready only marks: the pod's next status has the containers not ready. It is
	// for a container that somebody may have made not ready for another reason, so
	// such a mark ends after most if MarkUnready does not confirm it.
	HoldUnready(podUID types.UID, ids []kubecontainer.ContainerID, most time.Duration)
	// LimitMarks has the pod's marks that have no end come to it after most if MarkUnready
	// does not confirm them. It is for each sync: one that put the replacement off, or whose
	// kill failed, may never be followed by one that comes so far again.
	LimitMarks(podUID types.UID, most time.Duration)
	// LiftUnready takes away the marks that keep does not want, and those that have come to
	// their end. keep is asked for all. Readiness is as the pod's next
	// status says. It returns the containers whose mark is gone.
	LiftUnready(podUID types.UID, keep func(kubecontainer.ContainerID) bool) []kubecontainer.ContainerID
	// UnreadyState says how far the API server has heard of the pod's marks.
	UnreadyState(podUID types.UID) UnreadyState
	// PublishedPod asks the API server itself, once, for the pod of that name: nil if there
	// is none. An error says that the question has no answer.
	PublishedPod(namespace, name string) (*v1.Pod, error)
}

// UnreadyState is how far the API server has heard of a pod's marks.
type UnreadyState struct {
	// Marked: MarkUnready was called, and the marks stand.
	Marked bool
	// Since is when the oldest of them was made that the API server has not, or had not
	// until AcknowledgedAt, heard of.
	Since time.Time
	// Acknowledged: the API server has taken a status that was made with all marks.
	// AcknowledgedAt is when.
	Acknowledged   bool
	AcknowledgedAt time.Time
	// NotReadySince is when the API server first took a status with a mark; since then there
	// was always one, so the pod was never ready. A later mark does not change it.
	NotReadySince time.Time
	// LastAcknowledged is when that happened last to any pod of this kubelet.
	LastAcknowledged time.Time
}

// unreadyMarks is what a manager knows of marks, and of the statuses that the API
// server has taken of pods that have, or had, some. The zero value is ready for use; a
// pod that never had a mark costs one lookup.
//
// Its lock is a leaf: podStatusesLock may be held when it is taken, and nothing is
// called while it is held.
type unreadyMarks struct {
	sync.Mutex
	pods             map[types.UID]*podMarks
	lastAcknowledged time.Time

	client     corev1.PodsGetter
	clientOnce sync.Once
}

// podMarks stays until the pod's status is dropped, as an older status may still be
// queued when the last mark is lifted.
type podMarks struct {
	// containers has the marks by container ID: true if MarkUnready was called, false if
	// only HoldUnready was.
	containers map[string]bool
	// ends has when marks come to their end, by container ID; most have none.
	ends map[string]time.Time
	// version is the oldest version of the pod's status that has all marks. It is 0
	// until MarkUnready.
	version uint64
	// since and notReadySince are UnreadyState's.
	since, notReadySince time.Time
	// taken is the newest version that the API server has taken, and takenAt when it
	// first was at least version.
	taken   uint64
	takenAt time.Time
	// sending is the version that the writer of marks sends, or has sent last.
	sending uint64
	// sentTo is the UID in the API of the pod of which the writer sent taken. It is ""
	// when the manager's own loop knows it.
	sentTo types.UID
	// writing: a goroutine writes the pod's status until the marks are acknowledged.
	writing bool
}

func (p *podMarks) acknowledged() bool { return p.version > 0 && p.taken >= p.version }

// MarkUnready implements UnreadyMarking.
func (m *manager) MarkUnready(pod *v1.Pod, ids []kubecontainer.ContainerID) bool {
	if m.kubeClient == nil {
		return false
	}
	m.podStatusesLock.Lock()
	defer m.podStatusesLock.Unlock()
	cached, found := m.podStatuses[pod.UID]
	if !found {
		return false
	}
	if !m.unready.mark(pod.UID, ids, true) {
		return true
	}
	status := *cached.status.DeepCopy()
	if m.keepUnready(pod, &status) {
		m.updateStatusInternal(pod, status, false)
	}
	if marks := m.unready.from(pod.UID, m.podStatuses[pod.UID].version); marks != nil {
		go m.writeUnready(pod.UID, marks)
	}
	return true
}

// HoldUnready implements UnreadyMarking.
func (m *manager) HoldUnready(podUID types.UID, ids []kubecontainer.ContainerID, most time.Duration) {
	m.unready.mark(podUID, ids, false)
	m.unready.holdUntil(podUID, ids, time.Now().Add(most))
}

// LiftUnready implements UnreadyMarking.
func (m *manager) LiftUnready(podUID types.UID, keep func(kubecontainer.ContainerID) bool) []kubecontainer.ContainerID {
	var lifted []kubecontainer.ContainerID
	for _, id := range m.unready.of(podUID) {
		if !keep(id) || m.unready.heldInVain(podUID, id, time.Now()) {
			lifted = append(lifted, id)
		}
	}
	m.unready.lift(podUID, lifted)
	return lifted
}

// UnreadyState implements UnreadyMarking.
func (m *manager) UnreadyState(podUID types.UID) UnreadyState {
	return m.unready.state(podUID)
}

// keepUnready makes marked containers of a status that is about to be cached not
// ready, and the pod's Ready condition accordingly. It returns whether it changed
// something. podStatusesLock is held, so that no result of a probe can come between.
func (m *manager) keepUnready(pod *v1.Pod, status *v1.PodStatus) bool {
	changed := false
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if c.Ready && m.unready.has(pod.UID, c.ContainerID) {
			c.Ready, changed = false, true
		}
	}
	if changed {
		updateReadyCondition(pod, status)
	}
	return changed
}

// mayBeReady returns ready, or false for a marked container.
func (m *manager) mayBeReady(podUID types.UID, id kubecontainer.ContainerID, ready bool) bool {
	return ready && !m.unready.has(podUID, id.String())
}

// noteUnreadySent tells the manager's own loop what the writer of marks has sent, so
// that it does not send that again. It is called from that loop only.
func (m *manager) noteUnreadySent(podUID types.UID) {
	apiUID, version := m.unready.takeSent(podUID)
	if key := kubetypes.MirrorPodUID(apiUID); apiUID != "" && m.apiStatusVersions[key] < version {
		m.apiStatusVersions[key] = version
	}
}

// outdatedUnready says whether the manager's own loop must not write a version of the
// status of a pod that has, or had, marks: a newer one was taken by the API server or is
// on its way, or this one is of a status that was dropped while it was queued.
func (m *manager) outdatedUnready(podUID types.UID, version uint64) bool {
	m.podStatusesLock.RLock()
	defer m.podStatusesLock.RUnlock()
	return m.unready.outdated(podUID, version, m.podStatuses[podUID].version)
}

// noteTaken notes that the manager's own loop has written a version of the pod's status.
// One that is newer than the newest is of a status that was dropped while it was sent. One
// that is not newer cannot be told from the new status' own; a status is dropped and made
// again under one UID for static pods with a UID of their own only.
func (m *manager) noteTaken(podUID types.UID, version uint64) {
	m.podStatusesLock.RLock()
	defer m.podStatusesLock.RUnlock()
	if version <= m.podStatuses[podUID].version {
		m.unready.took(podUID, version)
	}
}

// mark notes marks, and reports whether there is something new to be written.
func (u *unreadyMarks) mark(podUID types.UID, ids []kubecontainer.ContainerID, confirmed bool) bool {
	u.Lock()
	defer u.Unlock()
	if u.pods == nil {
		u.pods = map[types.UID]*podMarks{}
	}
	p := u.pods[podUID]
	if p == nil {
		p = &podMarks{containers: map[string]bool{}, ends: map[string]time.Time{}}
		u.pods[podUID] = p
	}
	added := false
	for _, id := range ids {
		if before, marked := p.containers[id.String()]; !marked || !before && confirmed {
			p.containers[id.String()] = confirmed
			added = true
		}
		if confirmed {
			delete(p.ends, id.String())
		}
	}
	if added {
		if p.version == 0 || p.acknowledged() {
			p.since = time.Now()
		}
		p.version = 0 // what was acknowledged had one mark less
	}
	return added
}

// from notes the version of the first status with all marks. It returns the marks for
// which a writer is to be started, nil if none is.
func (u *unreadyMarks) from(podUID types.UID, version uint64) *podMarks {
	u.Lock()
	defer u.Unlock()
	p := u.pods[podUID]
	if p == nil {
		return nil
	}
	p.version = version
	if p.acknowledged() {
		u.acknowledge(p)
		return nil
	}
	if p.writing {
		return nil
	}
	p.writing = true
	return p
}

func (u *unreadyMarks) has(podUID types.UID, containerID string) bool {
	u.Lock()
	defer u.Unlock()
	p := u.pods[podUID]
	if p == nil {
		return false
	}
	_, marked := p.containers[containerID]
	return marked
}

func (u *unreadyMarks) of(podUID types.UID) []kubecontainer.ContainerID {
	u.Lock()
	defer u.Unlock()
	p := u.pods[podUID]
	if p == nil {
		return nil
	}
	var ids []kubecontainer.ContainerID
	for id := range p.containers {
		ids = append(ids, kubecontainer.ParseContainerID(id))
	}
	return ids
}

func (u *unreadyMarks) lift(podUID types.UID, ids []kubecontainer.ContainerID) {
	u.Lock()
	defer u.Unlock()
	if p := u.pods[podUID]; p != nil {
		for _, id := range ids {
			delete(p.containers, id.String())
			delete(p.ends, id.String())
		}
		if len(p.containers) == 0 {
			p.version, p.notReadySince = 0, time.Time{}
		}
	}
}

func (u *unreadyMarks) state(podUID types.UID) UnreadyState {
	u.Lock()
	defer u.Unlock()
	s := UnreadyState{LastAcknowledged: u.lastAcknowledged}
	p := u.pods[podUID]
	if p == nil || p.version == 0 {
		return s
	}
	s.Marked, s.Since, s.NotReadySince = true, p.since, p.notReadySince
	if s.Acknowledged = p.acknowledged(); s.Acknowledged {
		s.AcknowledgedAt = p.takenAt
	}
	return s
}

// took notes that the API server has taken a version of the pod's status.
func (u *unreadyMarks) took(podUID types.UID, version uint64) {
	u.Lock()
	defer u.Unlock()
	if p := u.pods[podUID]; p != nil {
		u.tookLocked(p, version)
	}
}

func (u *unreadyMarks) tookLocked(p *podMarks, version uint64) {
	if version <= p.taken {
		return
	}
	before := p.acknowledged()
	p.taken = version
	if p.acknowledged() && !before {
		u.acknowledge(p)
	}
}

// acknowledge notes that the API server has heard of all marks. The lock is held.
func (u *unreadyMarks) acknowledge(p *podMarks) {
	p.takenAt = time.Now()
	u.lastAcknowledged = p.takenAt
	if p.notReadySince.IsZero() {
		p.notReadySince = p.takenAt
	}
}

// outdated is outdatedUnready; newest is the version of the status that the pod has.
func (u *unreadyMarks) outdated(podUID types.UID, version, newest uint64) bool {
	u.Lock()
	defer u.Unlock()
	p := u.pods[podUID]
	return p != nil && (version < p.taken || version < p.sending || version > newest)
}

// takeSent returns what the writer of marks has sent and to which pod, once.
func (u *unreadyMarks) takeSent(podUID types.UID) (apiUID types.UID, version uint64) {
	u.Lock()
	defer u.Unlock()
	p := u.pods[podUID]
	if p == nil {
		return "", 0
	}
	apiUID, p.sentTo = p.sentTo, ""
	return apiUID, p.taken
}

// drop forgets a pod with its status: the versions of a new one begin at 1, and its
// marks are other podMarks. A writer that is under way still has the old ones.
func (u *unreadyMarks) drop(podUID types.UID) {
	u.Lock()
	defer u.Unlock()
	delete(u.pods, podUID)
}
