// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// fakeKeeper settles one container once: it becomes what was published.
type fakeKeeper struct {
	id            kubecontainer.ContainerID
	settled       bool
	probed, ready bool
}

func (k *fakeKeeper) SettleReadiness(_ types.UID, published *v1.PodStatus) map[kubecontainer.ContainerID]bool {
	if k.settled {
		return nil
	}
	k.settled = true
	return map[kubecontainer.ContainerID]bool{k.id: published.ContainerStatuses[0].Ready}
}

func (k *fakeKeeper) ProbedReadiness(kubecontainer.ContainerID) (bool, bool) {
	return k.ready, k.probed
}

func podWithReadiness(ready bool) *v1.Pod {
	pod := getTestPod()
	pod.Spec.Containers = []v1.Container{{Name: "c"}}
	condition := v1.ConditionFalse
	if ready {
		condition = v1.ConditionTrue
	}
	pod.Status = v1.PodStatus{
		Phase:      v1.PodRunning,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: condition, LastTransitionTime: metav1.NewTime(time.Unix(1500000000, 0))}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "test://c", Ready: ready,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
	}
	return pod
}

// TestHoldfastResettle: the status that the kubelet made of what it was given at
// start, and what the API server has by then. What is published is the latter.
func TestHoldfastResettle(t *testing.T) {
	for _, tc := range []struct {
		name            string
		given, fresh    bool
		probed, result  bool
		expectPublished []bool
	}{
		{name: "ready in both", given: true, fresh: true, expectPublished: []bool{true}},
		{name: "not ready in both", given: false, fresh: false, expectPublished: []bool{false}},
		{name: "ready in a stale list", given: true, fresh: false, expectPublished: []bool{false}},
		{name: "not ready in a stale list", given: false, fresh: true, expectPublished: []bool{true}},
		{name: "probed well in between", given: true, fresh: false, probed: true, result: true, expectPublished: []bool{true}},
		{name: "failed in between", given: false, fresh: true, probed: true, result: false, expectPublished: []bool{false}},
	} {
		a := newAPI(podWithReadiness(tc.fresh))
		m := newTestManager(a)
		pod := podWithReadiness(tc.given)
		m.podManager.UpdatePod(pod)
		m.SetReadinessKeeper(&fakeKeeper{id: kubecontainer.ContainerID{Type: "test", ID: "c"}, probed: tc.probed, ready: tc.result})
		m.SetPodStatus(pod, pod.Status)
		m.consumeUpdates()
		var published []bool
		for _, status := range a.written {
			published = append(published, podutil.IsPodReadyConditionTrue(status))
			assert.Equal(t, podutil.IsPodReadyConditionTrue(status), status.ContainerStatuses[0].Ready, tc.name)
		}
		// The last word counts; in between nothing may be published that is neither
		// what was published before nor a result.
		if assert.NotEmpty(t, published, tc.name) {
			assert.Equal(t, tc.expectPublished, published, tc.name)
		}
	}
}

// TestHoldfastResettleWithoutKeeper: nothing changes without one.
func TestHoldfastResettleWithoutKeeper(t *testing.T) {
	a := newAPI(podWithReadiness(false))
	m := newTestManager(a)
	pod := podWithReadiness(true)
	m.podManager.UpdatePod(pod)
	m.SetPodStatus(pod, pod.Status)
	m.consumeUpdates()
	assert.Equal(t, 2, a.requests, "a GET and a write")
	if assert.Len(t, a.written, 1) {
		assert.True(t, podutil.IsPodReadyConditionTrue(a.written[0]))
	}
}

// TestHoldfastResettleOlderStatus: a status that was made before the readiness was settled,
// and set after, does not take that back. A probe's result does.
func TestHoldfastResettleOlderStatus(t *testing.T) {
	for _, settled := range []bool{false, true} {
		a := newAPI(podWithReadiness(settled))
		m := newTestManager(a)
		pod := podWithReadiness(!settled)
		m.podManager.UpdatePod(pod)
		keeper := &fakeKeeper{id: kubecontainer.ContainerID{Type: "test", ID: "c"}}
		m.SetReadinessKeeper(keeper)
		publish := func() (readiness []bool) {
			before := a.writes()
			m.consumeUpdates()
			for _, status := range a.written[before:] {
				readiness = append(readiness, podutil.IsPodReadyConditionTrue(status))
				assert.Equal(t, podutil.IsPodReadyConditionTrue(status), status.ContainerStatuses[0].Ready)
			}
			return readiness
		}
		m.SetPodStatus(pod, pod.Status)
		assert.Equal(t, []bool{settled}, publish())
		m.SetPodStatus(pod, podWithReadiness(!settled).Status) // the second sync, made before
		assert.Empty(t, publish(), "settled as ready: %v", settled)
		assert.NotEmpty(t, m.settledReadiness)

		keeper.probed, keeper.ready = true, !settled
		m.SetContainerReadiness(pod.UID, keeper.id, !settled)
		m.SetPodStatus(pod, podWithReadiness(!settled).Status)
		for _, ready := range publish() {
			assert.Equal(t, !settled, ready, "the probe knows")
		}
		assert.Empty(t, m.settledReadiness)
	}
}

// TestHoldfastSettledReadinessDropped: what was settled goes with the container, and with the
// pod's status.
func TestHoldfastSettledReadinessDropped(t *testing.T) {
	m := newTestManager(fake.NewSimpleClientset())
	m.SetReadinessKeeper(&fakeKeeper{})
	id := kubecontainer.ContainerID{Type: "test", ID: "c"}
	pod := podWithReadiness(true)
	m.SetPodStatus(pod, pod.Status)
	m.noteSettled(pod.UID, id, false)
	next := podWithReadiness(true).Status
	next.ContainerStatuses[0].ContainerID = "test://c2"
	m.SetPodStatus(pod, next)
	assert.Empty(t, m.settledReadiness, "another container")
	status, _ := m.GetPodStatus(pod.UID)
	assert.True(t, status.ContainerStatuses[0].Ready)

	m.noteSettled(pod.UID, id, false)
	m.RemoveOrphanedStatuses(map[types.UID]bool{})
	m.noteSettled("other", id, false)
	assert.NotContains(t, m.settledReadiness, pod.UID)
}
