// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// sandboxNotReady is PodSandboxState_SANDBOX_NOTREADY of the CRI, whose package is not the same in
// all releases.
const sandboxNotReady = 1

// TestHoldfastContainersToStop: the answer is what the next SyncPod does.
func TestHoldfastContainersToStop(t *testing.T) {
	_, _, m, err := createTestRuntimeManager()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		change func(*v1.Pod, *kubecontainer.PodStatus)
		stop   []int
	}{
		"nothing changed": {func(*v1.Pod, *kubecontainer.PodStatus) {}, nil},
		"one image changed": {func(p *v1.Pod, _ *kubecontainer.PodStatus) {
			p.Spec.Containers[1].Image = "other"
		}, []int{1}},
		"the sandbox is dead": {func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.SandboxStatuses[0].State = sandboxNotReady
		}, []int{0, 1, 2}},
		"the sandbox has no IP": {func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.SandboxStatuses[0].Network.Ip = ""
		}, []int{0, 1, 2}},
	} {
		pod, status := makeBasePodAndStatus()
		for i := range status.ContainerStatuses {
			status.ContainerStatuses[i].Hash = kubecontainer.HashContainer(&pod.Spec.Containers[i])
		}
		tc.change(pod, status)
		stops := m.ContainersToStop(pod, status)
		var got []int
		for i, c := range status.ContainerStatuses {
			if stops(c.ID) {
				got = append(got, i)
			}
		}
		assert.Equal(t, tc.stop, got, name)
	}
}
