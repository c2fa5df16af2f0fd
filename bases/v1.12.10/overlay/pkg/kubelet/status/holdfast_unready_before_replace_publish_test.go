// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// TestHoldfastUnreadyOlderPatch: an older status that the manager's own loop has sent, and that the
// API server has not taken yet, goes before the marks. It would be taken after them.
func TestHoldfastUnreadyOlderPatch(t *testing.T) {
	m, a, pod := newMarking(t)
	m.SetContainerReadiness(pod.UID, idD, false)
	older := <-m.podStatusChannel // c is ready in it
	first := true
	a.set(func(verb string) error {
		if verb == "update" && first {
			first = false
			require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
			time.Sleep(20 * sentPoll)
			assert.False(t, m.UnreadyState(pod.UID).Acknowledged, "while an older status was under way")
		}
		return nil
	})
	m.syncPod(older.podUID, older.status)
	eventually(t, "acknowledged", acknowledged(m, pod))
	c, d, ready := a.ready()
	assert.Equal(t, []bool{false, false, false}, []bool{c, d, ready}, "the older status was written over the mark")
}

// TestHoldfastUnreadyNewerPatch: the manager's own loop writes a newer status while the one of the
// writer of marks is under way. The older one is refused, as it is of the pod that was read before.
func TestHoldfastUnreadyNewerPatch(t *testing.T) {
	m, a, pod := newMarking(t)
	writing, write, written := make(chan bool), make(chan bool), make(chan bool)
	updates := 0
	a.set(func(verb string) error {
		a.Lock()
		if verb == "update" {
			updates++
		}
		first := verb == "update" && updates == 1
		a.Unlock()
		if first {
			close(writing)
			<-write
		}
		return nil
	})
	require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
	<-writing
	m.SetContainerReadiness(pod.UID, idD, false)
	m.syncPod(pod.UID, m.podStatuses[pod.UID])
	c, d, ready := a.ready()
	require.Equal(t, []bool{false, false, false}, []bool{c, d, ready})
	served := 0
	a.setAfter(func(string) {
		if served++; served == 1 {
			close(written)
		}
	})
	close(write)
	<-written
	c, d, ready = a.ready()
	assert.Equal(t, []bool{false, false, false}, []bool{c, d, ready}, "an older status was written over a newer one")
}

// TestHoldfastUnreadyOverlappingPatch: the manager's own loop reads the pod, the writer of marks
// writes a status in which one container is ready again, and the loop writes a newer one. What the
// loop sends is what differs from what it has read, so the API server still has the writer's: that
// is no acknowledgement.
func TestHoldfastUnreadyOverlappingPatch(t *testing.T) {
	m, a, pod := newMarking(t)
	both := []kubecontainer.ContainerID{idC, idD}
	require.True(t, m.MarkUnready(pod, both))
	eventually(t, "acknowledged", acknowledged(m, pod))
	m.consumeUpdates()
	require.ElementsMatch(t, both, m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false }))

	writing, write, wrote, again := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
	updates := 0
	a.set(func(verb string) error {
		if verb == "update" {
			a.Lock()
			updates++
			n := updates
			a.Unlock()
			switch n {
			case 1: // the writer's, of which c is ready again
				close(writing)
				<-write
			case 2: // the loop's, after it has read the pod
				close(write)
				<-wrote
			case 3:
				<-again
			}
		}
		return nil
	})
	a.setAfter(func(verb string) {
		a.Lock()
		defer a.Unlock()
		if verb == "update" && len(a.written) == 3 {
			close(wrote)
		}
	})
	m.SetPodStatus(pod, twoContainers().Status)
	require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idD}))
	<-writing
	require.True(t, m.MarkUnready(pod, both))
	newest := m.podStatuses[pod.UID]
	m.syncPod(pod.UID, newest)
	c, d, _ := a.ready()
	require.Equal(t, []bool{true, false}, []bool{c, d}, "the writes did not overlap")
	assert.False(t, m.UnreadyState(pod.UID).Acknowledged, "c is ready for the API server")
	close(again)
	eventually(t, "acknowledged", acknowledged(m, pod))
	c, d, ready := a.ready()
	assert.Equal(t, []bool{false, false, false}, []bool{c, d, ready})
}

// TestHoldfastMarkUnreadyReadinessGate: the conditions of a pod with a readiness gate. Ready follows
// the containers and the gate, ContainersReady the containers, and the gate's own condition, which
// somebody else writes, stays.
func TestHoldfastMarkUnreadyReadinessGate(t *testing.T) {
	const gate = v1.PodConditionType("holdfast.test/gate")
	for _, open := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse} {
		pod := twoContainers()
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: gate}}
		pod.Status.Conditions = []v1.PodCondition{{Type: gate, Status: open}}
		updateReadyCondition(pod, &pod.Status)
		a := newAPI(pod)
		m := newTestManager(a)
		m.podManager.UpdatePod(pod)
		m.SetPodStatus(pod, pod.Status)
		m.consumeUpdates()
		conditions := func() [3]v1.ConditionStatus {
			a.Lock()
			defer a.Unlock()
			var all [3]v1.ConditionStatus
			for i, is := range []v1.PodConditionType{gate, v1.ContainersReady, v1.PodReady} {
				_, c := podutil.GetPodCondition(&a.pod.Status, is)
				require.NotNil(t, c, "%s", is)
				all[i] = c.Status
			}
			return all
		}
		before := [3]v1.ConditionStatus{open, v1.ConditionTrue, open}
		require.Equal(t, before, conditions())

		require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
		eventually(t, "acknowledged", acknowledged(m, pod))
		assert.Equal(t, [3]v1.ConditionStatus{open, v1.ConditionFalse, v1.ConditionFalse}, conditions())

		m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
		m.SetPodStatus(pod, pod.Status)
		m.consumeUpdates()
		assert.Equal(t, before, conditions(), "after the mark was lifted")
	}
}
