// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// keepsDesiredSpec says whether the desired state of a volume that was reconstructed is left
// as it is: its pod is there with the spec that the API has. The reconstructed one of an RBD
// volume has the same name but no user and no key, and would replace it.
func (rc *reconciler) keepsDesiredSpec(volume *reconstructedVolume) bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RBDRobustDetach) &&
		volume.volumeSpec.Volume != nil && volume.volumeSpec.Volume.RBD != nil &&
		rc.desiredStateOfWorld.PodExistsInVolume(volume.podName, volume.volumeName)
}

// correctReconstructed gives the entry in the actual state of an RBD volume of a live pod what
// the pod says, if it was reconstructed and says something else: another name in the pod, no
// group, read-write. A mount never replaces an entry; the pod would wait for its volume for
// ever, or its next container get the wrong options. At the node everything is mounted, and the
// entry is there throughout, so that a pod that ends meanwhile is unmounted. An entry that a mount
// made already says what the pod says.
func (rc *reconciler) correctReconstructed(v cache.VolumeToMount) {
	readOnly, isRBD := rbdReadOnly(v.VolumeSpec)
	// A pod that is gone is desired without a name, with what was reconstructed.
	if !isRBD || v.Pod == nil || v.Pod.Name == "" || !utilfeature.DefaultFeatureGate.Enabled(features.RBDRobustDetach) {
		return
	}
	for _, m := range rc.actualStateOfWorld.GetMountedVolumesForPod(v.PodName) {
		if m.VolumeName != v.VolumeName || m.Mounter == nil ||
			m.OuterVolumeSpecName == v.OuterVolumeSpecName && m.VolumeGidValue == v.VolumeGidValue && m.Mounter.GetAttributes().ReadOnly == readOnly {
			continue
		}
		glog.V(2).Infof("Volume %.300q of pod %q is known otherwise than the pod has it, as after a reconstruction; correcting that", v.VolumeName, v.PodName)
		if asw, ok := rc.actualStateOfWorld.(podCorrecter); ok {
			asw.CorrectPodInVolume(v.PodName, v.VolumeName, mounterWithReadOnly{m.Mounter, readOnly}, v.OuterVolumeSpecName, v.VolumeGidValue)
		}
	}
}

// podCorrecter is what the kubelet's actual state is, beside upstream's interface.
type podCorrecter interface {
	CorrectPodInVolume(podName volumetypes.UniquePodName, volumeName v1.UniqueVolumeName, mounter volume.Mounter, outerVolumeSpecName, volumeGidValue string) bool
}

// mounterWithReadOnly is a mounter that was reconstructed, with what the pod says.
type mounterWithReadOnly struct {
	volume.Mounter
	readOnly bool
}

func (m mounterWithReadOnly) GetAttributes() volume.Attributes {
	a := m.Mounter.GetAttributes()
	a.ReadOnly = m.readOnly
	return a
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
