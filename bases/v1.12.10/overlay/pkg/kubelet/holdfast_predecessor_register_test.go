// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

// TestPredecessorBeforeNodeIsReconciled: a Node that is there has its version taken before the
// kubelet writes to it.
func TestPredecessorBeforeNodeIsReconciled(t *testing.T) {
	kl, cleanup := predecessorKubelet(t, nil)
	defer cleanup()
	predecessor.Default.Start(predecessor.Config{RootDirectory: kl.rootDirectory, Identity: predecessor.Identity{NodeName: testKubeletHostname, MachineID: "m"}})
	tk := newTestKubelet(t, false)
	defer tk.Cleanup()
	written := false
	tk.fakeKubeClient.AddReactor("create", "nodes", func(core.Action) (bool, runtime.Object, error) {
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonAlreadyExists}}
	})
	tk.fakeKubeClient.AddReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
		return true, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testKubeletHostname},
			Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.11.10", MachineID: "m"}}}, nil
	})
	tk.fakeKubeClient.AddReactor("patch", "nodes", func(core.Action) (bool, runtime.Object, error) {
		written = true
		assert.Equal(t, "1.11.10", knownRelease())
		return true, &v1.Node{}, nil
	})
	// Another label than that of the Node is one that it writes.
	assert.True(t, tk.kubelet.tryRegisterWithAPIServer(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/hostname": "new"}}}))
	assert.True(t, written)
	assert.Equal(t, "1.11.10", knownRelease())
}
