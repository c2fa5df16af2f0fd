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
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// twoContainers is a ready pod, as its status manager is given it.
func twoContainers() *v1.Pod {
	pod := podWithReadiness(true)
	second := pod.Status.ContainerStatuses[0]
	second.Name, second.ContainerID = "d", "test://d"
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "d"})
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, second)
	return pod
}

var idC, idD = kubecontainer.ContainerID{Type: "test", ID: "c"}, kubecontainer.ContainerID{Type: "test", ID: "d"}

// newMarking is a manager that has published a ready pod.
func newMarking(t *testing.T) (*manager, *fakeAPI, *v1.Pod) {
	pod := twoContainers()
	a := newAPI(pod)
	m := newTestManager(a)
	m.podManager.UpdatePod(pod)
	m.SetPodStatus(pod, pod.Status)
	require.Equal(t, 1, m.consumeUpdates())
	require.Equal(t, 1, a.writes())
	return m, a, pod
}

func eventually(t *testing.T, what string, f func() bool) {
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func acknowledged(m *manager, pod *v1.Pod) func() bool {
	return func() bool { return m.UnreadyState(pod.UID).Acknowledged }
}

func readyOf(m *manager, uid types.UID) (c, d, pod bool) {
	s, _ := m.GetPodStatus(uid)
	return s.ContainerStatuses[0].Ready, s.ContainerStatuses[1].Ready, podutil.IsPodReadyConditionTrue(s)
}

// TestHoldfastMarkUnready: a marked container is not ready, whoever says so, and its
// neighbour is not touched.
func TestHoldfastMarkUnready(t *testing.T) {
	m, a, pod := newMarking(t)
	require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
	c, d, ready := readyOf(m, pod.UID)
	assert.Equal(t, []bool{false, true, false}, []bool{c, d, ready})
	eventually(t, "acknowledged", acknowledged(m, pod))
	c, d, ready = a.ready()
	assert.Equal(t, []bool{false, true, false}, []bool{c, d, ready}, "in the API")
	condition := podutil.GetPodReadyCondition(a.pod.Status)
	assert.Equal(t, ContainersNotReady, condition.Reason, "upstream's reason stays")
	assert.Contains(t, condition.Message, "[c]")

	m.SetContainerReadiness(pod.UID, idC, true) // a result of a probe that was queued before
	m.SetPodStatus(pod, twoContainers().Status) // what the next sync makes of it
	m.consumeUpdates()
	c, d, ready = readyOf(m, pod.UID)
	assert.Equal(t, []bool{false, true, false}, []bool{c, d, ready})
	m.SetContainerReadiness(pod.UID, idD, false) // others do as they like
	_, d, _ = readyOf(m, pod.UID)
	assert.False(t, d)
	m.SetContainerReadiness(pod.UID, idD, true)
	_, d, ready = readyOf(m, pod.UID)
	assert.True(t, d)
	assert.False(t, ready)

	// Put back: from the next status on the mark is as if it had not been.
	lifted := m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
	assert.Equal(t, []kubecontainer.ContainerID{idC}, lifted)
	assert.Empty(t, m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false }))
	assert.False(t, m.UnreadyState(pod.UID).Marked)
	m.SetPodStatus(pod, twoContainers().Status)
	m.consumeUpdates()
	c, d, ready = a.ready()
	assert.Equal(t, []bool{true, true, true}, []bool{c, d, ready}, "in the API after the mark was lifted")

	// And changed again: the acknowledgement of the first time does not count.
	a.set(func(string) error { return fmt.Errorf("away") })
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	assert.False(t, m.UnreadyState(pod.UID).Acknowledged)
	a.set(nil)
	eventually(t, "acknowledged again", acknowledged(m, pod))
}

// TestHoldfastMarkUnreadyTwo: two at once are one status; a second one later needs an
// acknowledgement of its own.
func TestHoldfastMarkUnreadyTwo(t *testing.T) {
	m, a, pod := newMarking(t)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC, idD})
	eventually(t, "acknowledged", acknowledged(m, pod))
	assert.Equal(t, 2, a.writes(), "one status for both")
	c, d, ready := a.ready()
	assert.Equal(t, []bool{false, false, false}, []bool{c, d, ready})

	m, a, pod = newMarking(t)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "acknowledged", acknowledged(m, pod))
	first := m.UnreadyState(pod.UID)
	assert.Equal(t, first.AcknowledgedAt, first.NotReadySince)
	a.set(func(string) error { return fmt.Errorf("away") })
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	assert.True(t, m.UnreadyState(pod.UID).Acknowledged, "marked again, nothing new")
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC, idD})
	s := m.UnreadyState(pod.UID)
	assert.False(t, s.Acknowledged)
	assert.True(t, s.Since.After(first.AcknowledgedAt))
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC, idD, {Type: "test", ID: "e"}})
	assert.Equal(t, s.Since, m.UnreadyState(pod.UID).Since, "a third one while the API server is away does not prolong the wait")
	a.set(nil)
	eventually(t, "acknowledged, both", acknowledged(m, pod))
	s = m.UnreadyState(pod.UID)
	assert.True(t, s.AcknowledgedAt.After(first.AcknowledgedAt))
	assert.Equal(t, first.NotReadySince, s.NotReadySince, "the pod was not ready all the time")
	_, d, _ = a.ready()
	assert.False(t, d)
}

// TestHoldfastHoldUnready: what is held is not ready in the first status that is made.
func TestHoldfastHoldUnready(t *testing.T) {
	pod := twoContainers()
	a := newAPI(pod)
	m := newTestManager(a)
	m.podManager.UpdatePod(pod)
	m.HoldUnready(pod.UID, []kubecontainer.ContainerID{idC}, time.Minute)
	assert.False(t, m.UnreadyState(pod.UID).Marked, "nobody has asked yet")
	m.SetPodStatus(pod, pod.Status)
	m.consumeUpdates()
	for _, s := range a.written {
		assert.False(t, s.ContainerStatuses[0].Ready)
		assert.False(t, podutil.IsPodReadyConditionTrue(s))
	}
	require.Len(t, a.written, 1)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "acknowledged", acknowledged(m, pod))
}

// TestHoldfastUnreadyMirrorUnknown: as long as the kubelet does not know whose the mirror pod
// is that the API server has, nobody has acknowledged anything.
func TestHoldfastUnreadyMirrorUnknown(t *testing.T) {
	pod, mirror := twoContainers(), twoContainers()
	pod.UID, mirror.UID = "static", "mirror"
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "file"}
	mirror.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "api", kubetypes.ConfigMirrorAnnotationKey: "x"}
	a := newAPI(mirror)
	asked := make(chan bool, 100)
	a.set(func(verb string) error { asked <- true; return nil })
	m := newTestManager(a)
	m.podManager.AddPod(pod)
	m.SetPodStatus(pod, pod.Status)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	<-asked
	time.Sleep(100 * time.Millisecond)
	assert.False(t, acknowledged(m, pod)())
	assert.Zero(t, a.writes())
	m.podManager.AddPod(mirror)
	eventually(t, "acknowledged", acknowledged(m, pod))
	c, _, _ := a.ready()
	assert.False(t, c)
}

// TestHoldfastUnreadyStaticPod: the API server has the static pod's status as the mirror
// pod's.
func TestHoldfastUnreadyStaticPod(t *testing.T) {
	pod := twoContainers()
	pod.UID = "static"
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "file"}
	mirror := twoContainers()
	mirror.UID = "mirror"
	mirror.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "api", kubetypes.ConfigMirrorAnnotationKey: "x"}
	a := newAPI(mirror)
	m := newTestManager(a)
	m.podManager.AddPod(pod)
	m.podManager.AddPod(mirror)
	m.SetPodStatus(pod, pod.Status)
	m.consumeUpdates()
	m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
	eventually(t, "acknowledged", acknowledged(m, pod))
	c, d, ready := a.ready()
	assert.Equal(t, []bool{false, true, false}, []bool{c, d, ready})
	m.consumeUpdates()
	c, _, _ = a.ready()
	assert.False(t, c)
}

// TestHoldfastUnreadyResettle: the status with a mark does not wait for another one
// because the container's readiness was only kept from before a restart; the other
// containers' is put right all the same.
func TestHoldfastUnreadyResettle(t *testing.T) {
	for _, other := range []bool{true, false} {
		pod := twoContainers()
		published := twoContainers()
		published.Status.ContainerStatuses[1].Ready = other // the kubelet's list had true
		a := newAPI(published)
		m := newTestManager(a)
		m.podManager.UpdatePod(pod)
		m.SetReadinessKeeper(&keeperOfAll{})
		m.SetPodStatus(pod, pod.Status)
		begin := time.Now()
		m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
		eventually(t, "acknowledged", acknowledged(m, pod))
		assert.True(t, time.Since(begin) < 5*time.Second, "%v", time.Since(begin))
		c, d, ready := a.ready()
		assert.Equal(t, []bool{false, other, false}, []bool{c, d, ready})
		for _, s := range a.written {
			assert.Equal(t, other, s.ContainerStatuses[1].Ready)
			assert.False(t, s.ContainerStatuses[0].Ready)
		}
	}
}

// keeperOfAll settles every container once as it was published.
type keeperOfAll struct {
	sync.Mutex
	settled bool
}

func (k *keeperOfAll) SettleReadiness(_ types.UID, published *v1.PodStatus) map[kubecontainer.ContainerID]bool {
	k.Lock()
	defer k.Unlock()
	if k.settled {
		return nil
	}
	k.settled = true
	return map[kubecontainer.ContainerID]bool{idC: published.ContainerStatuses[0].Ready, idD: published.ContainerStatuses[1].Ready}
}

func (k *keeperOfAll) ProbedReadiness(kubecontainer.ContainerID) (bool, bool) { return false, false }

// TestHoldfastUnreadyAgainstProbes: probes and syncs that say "ready" all the time never
// get that into the API after the acknowledgement.
func TestHoldfastUnreadyAgainstProbes(t *testing.T) {
	m, a, pod := newMarking(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, f := range []func(i int){
		func(i int) { m.SetContainerReadiness(pod.UID, idC, i%3 != 0) },
		func(i int) { m.SetContainerReadiness(pod.UID, idD, i%2 == 0) },
		func(int) { m.SetPodStatus(pod, twoContainers().Status) },
		func(int) { m.consumeUpdates() },
	} {
		wg.Add(1)
		go func(f func(int)) {
			defer wg.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		}(f)
	}
	time.Sleep(20 * time.Millisecond)
	for round := 0; round < 20; round++ {
		m.MarkUnready(pod, []kubecontainer.ContainerID{idC})
		eventually(t, "acknowledged", acknowledged(m, pod))
		for i := 0; i < 50; i++ {
			if c, _, ready := a.ready(); c || ready {
				t.Fatalf("round %d: the API server has it ready after the acknowledgement", round)
			}
			time.Sleep(100 * time.Microsecond)
		}
		m.LiftUnready(pod.UID, func(kubecontainer.ContainerID) bool { return false })
	}
	close(stop)
	wg.Wait()
}
