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

// TestPredecessorBeforeNodeIsDeleted: a Node of another external ID is deleted
// and made anew; its version is taken first.
func TestPredecessorBeforeNodeIsDeleted(t *testing.T) {
	kl, cleanup := predecessorKubelet(t, nil)
	defer cleanup()
	predecessor.Default.Start(predecessor.Config{RootDirectory: kl.rootDirectory, Identity: predecessor.Identity{NodeName: testKubeletHostname, MachineID: "m"}})
	tk := newTestKubelet(t, false)
	defer tk.Cleanup()
	deleted := false
	tk.fakeKubeClient.AddReactor("create", "nodes", func(core.Action) (bool, runtime.Object, error) {
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonAlreadyExists}}
	})
	tk.fakeKubeClient.AddReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
		return true, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testKubeletHostname}, Spec: v1.NodeSpec{ExternalID: "old"},
			Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.7.0", MachineID: "m"}}}, nil
	})
	tk.fakeKubeClient.AddReactor("delete", "nodes", func(core.Action) (bool, runtime.Object, error) {
		deleted = true
		assert.Equal(t, "1.7.0", knownRelease())
		return true, nil, nil
	})
	assert.False(t, tk.kubelet.tryRegisterWithAPIServer(&v1.Node{Spec: v1.NodeSpec{ExternalID: "new"}}))
	assert.True(t, deleted)
	assert.Equal(t, "1.7.0", knownRelease())
}
