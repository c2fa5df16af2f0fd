// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"slices"
	"testing"
)

// TestNotCompared has lines as 1.7.0, 1.8.15 and 1.9.11 write them, cut where what
// they print of the decision does not matter.
func TestNotCompared(t *testing.T) {
	log := `I1121 10:00:00.000000       7 kuberuntime_manager.go:548] computePodContainerChanges got {StartInfraContainer:false ContainersToKeep:map[{"docker" "17"}:0]} for pod "old_default(0b5e-1)"
I1121 10:00:00.000000       7 kuberuntime_manager.go:571] computePodActions got {KillPod:false CreateSandbox:false ContainersToKill:map[]} for pod "new-pod_kube-system(0b5e-2)"
I1121 10:00:00.000000       7 kuberuntime_manager.go:571] computePodActions got {KillPod:false message:for pod "liar_default(1)" it is} for pod "static-node1_default(0b5e-3)"
I1121 10:00:00.000000       7 kubelet.go:1] SyncLoop (ADD, "api"): "never_default(0b5e-4)"
`
	got := notCompared(log, []string{"default/old", "kube-system/new-pod", "default/new-pod", "default/static-node1", "default/never", "default/liar"})
	if want := []string{"default/new-pod", "default/never", "default/liar"}; !slices.Equal(got, want) {
		t.Errorf("not compared: %v, want %v", got, want)
	}
}

func TestSnapshotPods(t *testing.T) {
	got := Snapshot{"a/x/main": {}, "a/x/POD": {}, "b/y/main": {}}.Pods()
	if want := []string{"a/x", "b/y"}; !slices.Equal(got, want) {
		t.Errorf("pods: %v, want %v", got, want)
	}
}
