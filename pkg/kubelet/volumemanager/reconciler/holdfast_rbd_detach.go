// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"github.com/golang/glog"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
)

// keepsDesiredSpec says whether the desired state of a volume that was reconstructed is left
// as it is: its pod is there with the spec that the API has. The reconstructed one of an RBD
// volume has the same name but no user and no key, and would replace it.
func (rc *reconciler) keepsDesiredSpec(volume *reconstructedVolume) bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RBDRobustDetach) &&
		volume.volumeSpec.Volume != nil && volume.volumeSpec.Volume.RBD != nil &&
		rc.desiredStateOfWorld.PodExistsInVolume(volume.podName, volume.volumeName)
}

// forgetReconstructed lets an RBD volume of a live pod be mounted the ordinary way, if its
// entry in the actual state was reconstructed and says something else than the pod: another
// name in the pod, no group, read-write. An entry is never replaced by a mount; the pod would
// wait for its volume for ever, or its next container get the wrong options. The mount reads the
// volume's Secret; at the node it finds everything mounted and does nothing.
func (rc *reconciler) forgetReconstructed(v cache.VolumeToMount) {
	readOnly, isRBD := rbdReadOnly(v.VolumeSpec)
	// A pod that is gone is desired without a name, with what was reconstructed.
	if !isRBD || v.Pod == nil || v.Pod.Name == "" || !utilfeature.DefaultFeatureGate.Enabled(features.RBDRobustDetach) {
		return
	}
	for _, m := range rc.actualStateOfWorld.GetMountedVolumesForPod(v.PodName) {
		if m.VolumeName != v.VolumeName || m.Mounter == nil {
			continue
		}
		if m.OuterVolumeSpecName != v.OuterVolumeSpecName || m.VolumeGidValue != v.VolumeGidValue ||
			m.Mounter.GetAttributes().ReadOnly != readOnly {
			glog.V(2).Infof("Volume %q of pod %q is known otherwise than the pod has it, as after a reconstruction; mounting it again", v.VolumeName, v.PodName)
			if err := rc.actualStateOfWorld.DeletePodFromVolume(v.PodName, v.VolumeName); err != nil {
				glog.Errorf("Could not forget volume %q of pod %q: %v", v.VolumeName, v.PodName, err)
			}
		}
	}
}

// rbdReadOnly says whether a volume is of RBD, and whether its mounter is a read-only one.
func rbdReadOnly(spec *volume.Spec) (readOnly, isRBD bool) {
	switch {
	case spec == nil:
		return false, false
	case spec.Volume != nil && spec.Volume.RBD != nil:
		return spec.Volume.RBD.ReadOnly, true
	case spec.PersistentVolume != nil && spec.PersistentVolume.Spec.RBD != nil:
		return spec.ReadOnly, true
	}
	return false, false
}
