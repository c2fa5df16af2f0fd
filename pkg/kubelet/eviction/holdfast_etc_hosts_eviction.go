// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubernetes/pkg/kubelet/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

// withEtcHosts adds the pod's /etc/hosts to the usage of its local volumes: like these it
// is on the node's disk.
func withEtcHosts(usage v1.ResourceList, podStats statsapi.PodStats) v1.ResourceList {
	bytes, inodes := etchosts.Usage(types.UID(podStats.PodRef.UID))
	if inodes == 0 {
		return usage
	}
	disk, count := usage[localDisk], usage[resourceInodes]
	disk.Add(*resource.NewQuantity(int64(bytes), resource.BinarySI))
	count.Add(*resource.NewQuantity(int64(inodes), resource.BinarySI))
	return v1.ResourceList{localDisk: disk, resourceInodes: count}
}
