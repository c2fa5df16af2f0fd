// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// TestHoldfastUnreadyOlderStatusBeforeAnswer: nor is it between the API server's taking of the
// mark and the answer that says so, as the container is killed when that has come.
func TestHoldfastUnreadyOlderStatusBeforeAnswer(t *testing.T) {
	m, a, pod := newMarking(t)
	m.SetContainerReadiness(pod.UID, idD, false)
	m.SetContainerReadiness(pod.UID, idD, true)
	<-m.podStatusChannel
	older := <-m.podStatusChannel // ready
	done := make(chan struct{})
	a.setAfter(func(verb string) {
		if verb == "update" {
			a.setAfter(nil)
			m.syncPod(older.podUID, older.status)
			close(done)
		}
	})
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	<-done
	eventually(t, "acknowledged", acknowledged(m, pod))
	c, _, ready := a.ready()
	assert.Equal(t, []bool{false, false}, []bool{c, ready}, "the older status was written over the mark")
}

// TestHoldfastUnreadyNewerStatus: a status that the manager's own loop writes while the
// writer's GET is under way is not followed by the older one with the mark.
func TestHoldfastUnreadyNewerStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		next func(m *manager, pod *v1.Pod)
		id   string
	}{
		"put back": {func(m *manager, pod *v1.Pod) {
			m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
			m.SetPodStatus(pod, twoContainers().Status)
			m.consumeUpdates()
		}, "test://c"},
		"replaced": {func(m *manager, pod *v1.Pod) {
			m.consumeUpdates()
			assert.True(t, m.UnreadyState(pod.UID).Acknowledged, "by the manager's own loop")
			m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
			s := twoContainers().Status
			s.ContainerStatuses[0].ContainerID = "test://c2"
			m.SetPodStatus(pod, s)
			m.consumeUpdates()
		}, "test://c2"},
		"replaced, and the other one is marked": {func(m *manager, pod *v1.Pod) {
			m.MarkUnready(pod, []kubecontainer.ContainerID{idC, idD})
			m.LiftUnready(pod.UID, func(id kubecontainer.ContainerID) bool { return id == idD })
			s := twoContainers().Status
			s.ContainerStatuses[0].ContainerID = "test://c2"
			m.SetPodStatus(pod, s)
		}, "test://c2"},
	} {
		m, a, pod := newMarking(t)
		first := true
		a.set(func(verb string) error {
			if verb == "get" && first {
				first = false
				a.set(nil)
				tc.next(m, pod)
			}
			return nil
		})
		require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
		m.unready.Lock()
		marks := m.unready.pods[pod.UID]
		m.unready.Unlock()
		eventually(t, "the writer ends", func() bool {
			m.unready.Lock()
			defer m.unready.Unlock()
			return !marks.writing
		})
		m.consumeUpdates()
		c, d, ready := a.ready()
		ownC, ownD, own := readyOf(m, pod.UID)
		assert.Equal(t, []bool{ownC, ownD, own}, []bool{c, d, ready}, name)
		assert.Equal(t, tc.id, a.pod.Status.ContainerStatuses[0].ContainerID, name)
		for i := 2; i < len(a.written); i++ {
			assert.Equal(t, tc.id, a.written[i].ContainerStatuses[0].ContainerID, "%s: write %d", name, i)
		}
	}
}

// TestHoldfastUnreadyRequestTimeout: a request that hangs does not keep the next ones from
// being made, nor does an answer that says when to come again.
func TestHoldfastUnreadyRequestTimeout(t *testing.T) {
	defer func(d time.Duration) { unreadyRequestTimeout = d }(unreadyRequestTimeout)
	unreadyRequestTimeout = 200 * time.Millisecond
	for _, hangs := range []string{"get", "update"} {
		m, a, pod := newMarking(t)
		goOn := make(chan struct{})
		first := true
		a.set(func(verb string) error {
			a.Lock()
			mine := first && verb == hangs
			first = first && !mine
			a.Unlock()
			if mine {
				<-goOn
				return fmt.Errorf("too late")
			}
			return nil
		})
		m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
		eventually(t, hangs+" hangs", acknowledged(m, pod))
		close(goOn)
	}

	m, a, pod := newMarking(t)
	a.set(func(verb string) error {
		a.set(nil)
		return errors.NewServerTimeout(v1.Resource("pods"), verb, 60)
	})
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "an answer that says when to come again", acknowledged(m, pod))
}
