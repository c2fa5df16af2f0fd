// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"testing"

	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// BenchmarkComputePodActions110Pods is what one round of syncs of a full node
// computes: 110 pods of three containers that this release started. It uses
// no name of ours, so the file can be copied into the stock tree.
func BenchmarkComputePodActions110Pods(b *testing.B) {
	_, _, m, err := createTestRuntimeManager()
	if err != nil {
		b.Fatal(err)
	}
	pod, podStatus := makeBasePodAndStatus()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		c.Image = "example.com/app:1"
		podStatus.ContainerStatuses[i].Hash = kubecontainer.HashContainer(c)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		for p := 0; p < 110; p++ {
			if got := m.computePodActions(pod, podStatus); len(got.ContainersToKill) > 0 {
				b.Fatal(got)
			}
		}
	}
}
