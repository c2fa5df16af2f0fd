// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// TestHoldfastUnreadyNeedsNewWrite: that the API server has the pod as not ready from
// before is no acknowledgement.
func TestHoldfastUnreadyNeedsNewWrite(t *testing.T) {
	m, a, pod := newMarking(t)
	m.SetContainerReadiness(pod.UID, idC, false)
	m.consumeUpdates()
	_, _, ready := a.ready()
	require.False(t, ready)
	a.set(func(verb string) error {
		if verb == "update" {
			return fmt.Errorf("away")
		}
		return nil
	})
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	time.Sleep(50 * time.Millisecond)
	assert.False(t, m.UnreadyState(pod.UID).Acknowledged)
	a.set(nil)
	eventually(t, "acknowledged", acknowledged(m, pod))
}

// TestHoldfastUnreadyRetries: a conflict is tried again at once, another error soon; no
// retry waits for syncBatch.
func TestHoldfastUnreadyRetries(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		most time.Duration
	}{
		{"conflict", errors.NewConflict(v1.Resource("pods"), "foo", fmt.Errorf("changed")), 800 * time.Millisecond},
		{"error", errors.NewInternalError(fmt.Errorf("etcd is away")), 3 * time.Second},
		{"slow", nil, 3 * time.Second},
	} {
		m, a, pod := newMarking(t)
		left := 2
		a.set(func(verb string) error {
			if verb == "update" && left > 0 {
				left--
				if tc.err == nil {
					time.Sleep(300 * time.Millisecond)
				}
				return tc.err
			}
			return nil
		})
		begin := time.Now()
		m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
		assert.True(t, time.Since(begin) < 200*time.Millisecond, "%s: marking does not wait", tc.name)
		eventually(t, tc.name, acknowledged(m, pod))
		assert.True(t, time.Since(begin) < tc.most, "%s: %v", tc.name, time.Since(begin))
	}
}

// TestHoldfastUnreadyQueueFull: the writer does not need the manager's queue.
func TestHoldfastUnreadyQueueFull(t *testing.T) {
	m, a, pod := newMarking(t)
	for len(m.podStatusChannel) < cap(m.podStatusChannel) {
		m.podStatusChannel <- podStatusSyncRequest{"other", versionedPodStatus{}}
	}
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "acknowledged", acknowledged(m, pod))
	_, _, ready := a.ready()
	assert.False(t, ready)
}

// TestHoldfastUnreadyOlderStatus: a status from before the mark is not written after it,
// wherever in the manager's own loop it is when the mark comes.
func TestHoldfastUnreadyOlderStatus(t *testing.T) {
	// Still queued.
	m, a, pod := newMarking(t)
	m.SetContainerReadiness(pod.UID, idD, false)
	m.SetContainerReadiness(pod.UID, idD, true) // queued: ready, and two versions of it
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "acknowledged", acknowledged(m, pod))
	writes, requests := a.writes(), a.requests
	m.consumeUpdates()
	assert.Equal(t, writes, a.writes(), "the manager's own loop has nothing to add")
	assert.Equal(t, requests, a.requests, "and asks for nothing")
	m.testSyncBatch()
	assert.Equal(t, writes, a.writes())

	// Between the loop's GET and its PUT.
	m, a, pod = newMarking(t)
	m.SetContainerReadiness(pod.UID, idD, false)
	older := <-m.podStatusChannel
	first := true
	a.set(func(verb string) error {
		if verb == "get" && first {
			first = false
			a.set(nil)
			m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
			eventually(t, "acknowledged", acknowledged(m, pod))
		}
		return nil
	})
	m.syncPod(older.podUID, older.status)
	c, _, ready := a.ready()
	assert.Equal(t, []bool{false, false}, []bool{c, ready}, "the older status was written over the mark")
	assert.Equal(t, 2, a.writes())
	m.consumeUpdates()
	c, _, ready = a.ready()
	assert.Equal(t, []bool{false, false}, []bool{c, ready})

	// A mark that is lifted leaves no way for it either.
	m, a, pod = newMarking(t)
	m.SetContainerReadiness(pod.UID, idD, false)
	older = <-m.podStatusChannel
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "acknowledged", acknowledged(m, pod))
	m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
	m.syncPod(older.podUID, older.status)
	c, _, _ = a.ready()
	assert.False(t, c, "the older status was written after the container was replaced")
}

// TestHoldfastUnreadyOwnLoop: the manager's own loop acknowledges too.
func TestHoldfastUnreadyOwnLoop(t *testing.T) {
	m, a, pod := newMarking(t)
	var block sync.Mutex
	block.Lock()
	first := true
	a.set(func(verb string) error {
		a.Lock()
		mine := first
		first = false
		a.Unlock()
		if mine {
			block.Lock() // the writer's first request hangs
		}
		return nil
	})
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "the writer's request", func() bool { a.Lock(); defer a.Unlock(); return !first })
	assert.False(t, m.UnreadyState(pod.UID).Acknowledged)
	m.consumeUpdates()
	assert.True(t, m.UnreadyState(pod.UID).Acknowledged)
	block.Unlock() // its PUT is a conflict then, or the same again
}

// TestHoldfastUnreadyDropped: with the status go its marks and acknowledgements, as the
// versions of a new one begin at 1.
func TestHoldfastUnreadyDropped(t *testing.T) {
	for name, drop := range map[string]func(*manager, types.UID){
		"orphaned": func(m *manager, _ types.UID) { m.RemoveOrphanedStatuses(map[types.UID]bool{}) },
		"deleted":  func(m *manager, uid types.UID) { m.deletePodStatus(uid) },
	} {
		m, a, pod := newMarking(t)
		for i := 0; i < 5; i++ {
			m.SetContainerReadiness(pod.UID, idD, i%2 == 1)
		}
		m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
		eventually(t, "acknowledged", acknowledged(m, pod))
		m.consumeUpdates()
		drop(m, pod.UID)
		assert.Equal(t, UnreadyState{LastAcknowledged: m.unready.lastAcknowledged}, m.UnreadyState(pod.UID), name)
		assert.False(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}), "%s: there is no status to mark", name)

		a.set(func(string) error { return fmt.Errorf("away") })
		m.SetPodStatus(pod, twoContainers().Status)
		assert.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
		assert.False(t, m.UnreadyState(pod.UID).Acknowledged, "%s: by the versions of the status before", name)
		a.set(nil)
		eventually(t, name, acknowledged(m, pod))
		_, _, ready := a.ready()
		assert.False(t, ready, name)
	}
}

// TestHoldfastUnreadyDroppedWhileSent: what was sent of a status that was dropped
// meanwhile is no acknowledgement of the next one's versions, and holds none of them back.
func TestHoldfastUnreadyDroppedWhileSent(t *testing.T) {
	m, a, pod := newMarking(t)
	for i := 0; i < 10; i++ {
		m.SetContainerReadiness(pod.UID, idD, i%2 == 1)
	}
	m.consumeUpdates()
	held, goOn := make(chan struct{}), make(chan struct{})
	hold := func(verb string) error {
		if verb == "update" {
			a.set(func(string) error { return fmt.Errorf("away") }) // for all others
			close(held)
			<-goOn
		}
		return nil
	}
	a.set(hold)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	<-held
	old := m.unready.pods[pod.UID]
	m.consumeUpdates() // in vain
	m.deletePodStatus(pod.UID)
	m.testSyncBatch() // forgets the versions, as stock does every 10 s
	m.SetPodStatus(pod, twoContainers().Status)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	close(goOn)
	eventually(t, "the old writer's answer", func() bool {
		m.unready.Lock()
		defer m.unready.Unlock()
		return old.taken >= old.version || m.unready.pods[pod.UID].taken >= old.version
	})
	assert.False(t, m.UnreadyState(pod.UID).Acknowledged, "by the write of a status that was dropped")
	a.set(nil)
	eventually(t, "acknowledged", acknowledged(m, pod))

	m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
	m.SetPodStatus(pod, twoContainers().Status)
	m.consumeUpdates()
	_, _, ready := a.ready()
	assert.True(t, ready, "the status after that was not published")
}

// TestHoldfastUnreadyDroppedInLoop: the same of the manager's own loop, with a status that
// was queued, or sent, when it was dropped.
func TestHoldfastUnreadyDroppedInLoop(t *testing.T) {
	for _, sent := range []bool{false, true} {
		m, a, pod := newMarking(t)
		for i := 0; i < 10; i++ {
			m.SetContainerReadiness(pod.UID, idD, i%2 == 1)
		}
		var queued podStatusSyncRequest
		for len(m.podStatusChannel) > 0 {
			queued = <-m.podStatusChannel
		}
		anew := func() {
			m.RemoveOrphanedStatuses(map[types.UID]bool{})
			m.SetPodStatus(pod, twoContainers().Status)
			m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
		}
		if sent {
			a.set(func(verb string) error {
				if verb == "update" {
					a.set(func(string) error { return fmt.Errorf("away") }) // for the writer
					anew()
				}
				return nil
			})
		} else {
			anew()
			eventually(t, "acknowledged", acknowledged(m, pod))
		}
		m.syncPod(queued.podUID, queued.status)
		if sent {
			assert.False(t, m.UnreadyState(pod.UID).Acknowledged, "by the write of a status that was dropped")
			a.set(nil)
			eventually(t, "acknowledged", acknowledged(m, pod))
		}
		c, _, ready := a.ready()
		assert.Equal(t, []bool{false, false}, []bool{c, ready}, "sent: %v", sent)
		m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
		m.SetPodStatus(pod, twoContainers().Status)
		delete(m.apiStatusVersions, kubetypes.MirrorPodUID(pod.UID)) // stock's syncBatch, as the API has another status
		m.consumeUpdates()
		_, _, ready = a.ready()
		assert.True(t, ready, "the status after that was not published; sent: %v", sent)
	}
}

// TestHoldfastUnreadyNobodyToTell: a pod that is not there has no address.
func TestHoldfastUnreadyNobodyToTell(t *testing.T) {
	m, a, pod := newMarking(t)
	a.Lock()
	a.pod = nil
	a.Unlock()
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "no pod", acknowledged(m, pod))

	m, a, pod = newMarking(t)
	a.Lock()
	a.pod.UID = "another"
	a.Unlock()
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "another pod of that name", acknowledged(m, pod))
	assert.Equal(t, 1, a.writes(), "nothing was written to it")

	m = newTestManager(nil)
	m.kubeClient = nil
	assert.False(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}), "no API server at all")
}
