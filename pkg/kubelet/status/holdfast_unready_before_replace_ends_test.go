// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// TestHoldfastHoldUnreadyEnds: a hold that nobody confirms has an end, a mark has none.
func TestHoldfastHoldUnreadyEnds(t *testing.T) {
	all := func(kubecontainer.ContainerID) bool { return true }
	m, _, pod := newMarking(t)
	m.HoldUnready(pod.UID, []kubecontainer.ContainerID{idC}, time.Hour)
	assert.Empty(t, m.LiftUnready(pod.UID, all))
	m.HoldUnready(pod.UID, []kubecontainer.ContainerID{idC, idD}, 0)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idD})
	assert.Equal(t, []kubecontainer.ContainerID{idC}, m.LiftUnready(pod.UID, all))
	m.SetPodStatus(pod, twoContainers().Status)
	c, d, _ := readyOf(m, pod.UID)
	assert.Equal(t, []bool{true, false}, []bool{c, d})
	eventually(t, "acknowledged", acknowledged(m, pod))
	// A mark has one from the next sync on, until it is confirmed.
	m.LimitMarks(pod.UID, time.Hour)
	assert.Empty(t, m.LiftUnready(pod.UID, all))
	m.MarkUnready(pod, []kubecontainer.ContainerID{idD})
	m.LimitMarks(pod.UID, 0)
	m.MarkUnready(pod, []kubecontainer.ContainerID{idD})
	assert.Empty(t, m.LiftUnready(pod.UID, all))
	m.LimitMarks(pod.UID, 0)
	m.LimitMarks(pod.UID, time.Hour)
	assert.Equal(t, []kubecontainer.ContainerID{idD}, m.LiftUnready(pod.UID, all), "an end stays as it is")
	m.LimitMarks("gone", 0)
	assert.NotContains(t, m.unready.pods, types.UID("gone"), "a limit marks nothing")
	assert.Empty(t, m.LiftUnready(pod.UID, all))
}
