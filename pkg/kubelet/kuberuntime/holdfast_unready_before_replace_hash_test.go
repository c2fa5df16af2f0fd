// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
)

// TestHoldfastPrepareReplacementOlderHash: a container with the hash of an older release is not
// replaced, and so the kubelet is not asked.
func TestHoldfastPrepareReplacementOlderHash(t *testing.T) {
	_, _, m, err := createTestRuntimeManager()
	require.NoError(t, err)
	helper := &fakePreparer{}
	m.runtimeHelper = helper
	pod, status := makeBasePodAndStatus()
	_, hash, ok := hashcompat.OldestHash(&pod.Spec.Containers[1], hashcompat.Gen17)
	require.True(t, ok)
	require.NotEqual(t, status.ContainerStatuses[1].Hash, hash)
	status.ContainerStatuses[1].Hash = hash
	actions := m.computePodActions(pod, status)
	assert.True(t, m.prepareReplacement(pod, status, &actions))
	assert.Empty(t, helper.names)
	assert.Empty(t, m.ContainersChanged(pod, status))
}
