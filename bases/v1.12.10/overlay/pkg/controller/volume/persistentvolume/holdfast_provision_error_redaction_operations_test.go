// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import "k8s.io/api/core/v1"

func (*answeringPlugin) Provision(*v1.Node, []v1.TopologySelectorTerm) (*v1.PersistentVolume, error) {
	return nil, errAnswer
}

func deleteVolume(ctrl *PersistentVolumeController, volume *v1.PersistentVolume) error {
	_, err := ctrl.deleteVolumeOperation(volume)
	return err
}
