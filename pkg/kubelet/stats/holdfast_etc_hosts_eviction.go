// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubernetes/pkg/kubelet/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

// calcPodEphemeralStorage is calcEphemeralStorage with the pod's /etc/hosts.
func calcPodEphemeralStorage(uid types.UID, containers []statsapi.ContainerStats, volumes []statsapi.VolumeStats, rootFsInfo *cadvisorapiv2.FsInfo) *statsapi.FsStats {
	result := calcEphemeralStorage(containers, volumes, rootFsInfo)
	if bytes, inodes := etchosts.Usage(uid); inodes > 0 {
		result.UsedBytes = addUsage(result.UsedBytes, &bytes)
		result.InodesUsed = addUsage(result.InodesUsed, &inodes)
	}
	return result
}
