// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit/kube"
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

// TestRecentAddresses: an address that has left counts for a while, one that left
// before that does not, and one that stood all the time does.
func TestRecentAddresses(t *testing.T) {
	now := time.Now()
	version := func(ago time.Duration, kind string, pods ...string) kube.RecordedEvent {
		var addresses []any
		for _, p := range pods {
			addresses = append(addresses, map[string]any{"ip": "10.0.0." + p, "targetRef": map[string]any{"name": "pod-" + p}})
		}
		return kube.RecordedEvent{Time: now.Add(-ago), Type: kind, Object: &kube.Object{Object: map[string]any{
			"subsets": []any{map[string]any{"addresses": addresses, "ports": []any{map[string]any{"port": int64(8080)}}}}}}}
	}
	evs := []kube.RecordedEvent{
		version(time.Hour, "LISTED", "1", "2", "3", "4"),
		version(time.Minute, "MODIFIED", "2", "3", "4"),
		version(900*time.Millisecond, "MODIFIED", "3", "4", "5"),
		version(100*time.Millisecond, "MODIFIED", "4", "5"),
	}
	for _, tt := range []struct {
		evs  []kube.RecordedEvent
		age  time.Duration
		want []string
	}{
		{evs, 0, []string{"10.0.0.5:8080"}},
		{evs, 500 * time.Millisecond, []string{"10.0.0.3:8080", "10.0.0.5:8080"}},
		{evs, time.Second, []string{"10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.5:8080"}},
		{evs, 2 * time.Hour, []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.5:8080"}},
		{append(evs[:4:4], version(50*time.Millisecond, "DELETED")), 0, nil},
		{nil, time.Second, nil},
	} {
		got := recentAddresses(tt.evs, now.Add(-tt.age), func(pod string) bool { return pod != "pod-4" })
		if !slices.Equal(got, tt.want) {
			t.Errorf("within %v: %v, want %v", tt.age, got, tt.want)
		}
	}
}
