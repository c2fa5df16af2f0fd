// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// keepsDesiredSpec says whether the desired state of a volume that was reconstructed is left
// as it is: its pod is there with the spec that the API has. The reconstructed one of an RBD
// volume has the same name but no user and no key, and would replace it.
func (rc *reconciler) keepsDesiredSpec(volume *reconstructedVolume) bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RBDRobustDetach) &&
		volume.volumeSpec.Volume != nil && volume.volumeSpec.Volume.RBD != nil &&
		rc.desiredStateOfWorld.PodExistsInVolume(volume.podName, volume.volumeName)
}
