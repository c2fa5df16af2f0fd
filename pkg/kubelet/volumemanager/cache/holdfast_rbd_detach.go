// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// CorrectPodInVolume gives the entry of a volume that is mounted for a pod another mounter,
// name in the pod and group, under one lock: whoever reads sees the old entry or the new one.
// It says whether there is such an entry.
func (asw *actualStateOfWorld) CorrectPodInVolume(podName volumetypes.UniquePodName, volumeName v1.UniqueVolumeName, mounter volume.Mounter, outerVolumeSpecName, volumeGidValue string) bool {
	asw.Lock()
	defer asw.Unlock()

	podObj, podExists := asw.attachedVolumes[volumeName].mountedPods[podName]
	if !podExists {
		return false
	}
	podObj.mounter = mounter
	podObj.outerVolumeSpecName = outerVolumeSpecName
	podObj.volumeGidValue = volumeGidValue
	podObj.remountRequired = false
	asw.attachedVolumes[volumeName].mountedPods[podName] = podObj
	return true
}
