// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleio

import (
	siotypes "github.com/codedellemc/goscaleio/types/v1"
	"k8s.io/kubernetes/pkg/volume/util/provisionerror"
)

// withoutAnswers is a sioInterface whose errors do not quote the gateway: a pod names
// it, and events quote the error. What is asked of the node alone stays as it is.
type withoutAnswers struct {
	sioInterface
}

func answer(operation string, id string, err error) error {
	return provisionerror.Answer(sioPluginName, operation, id, err)
}

func (w withoutAnswers) FindVolume(name string) (*siotypes.Volume, error) {
	v, err := w.sioInterface.FindVolume(name)
	return v, answer(provisionerror.Mount, name, err)
}

func (w withoutAnswers) Volume(id sioVolumeID) (*siotypes.Volume, error) {
	v, err := w.sioInterface.Volume(id)
	return v, answer(provisionerror.Mount, string(id), err)
}

func (w withoutAnswers) CreateVolume(name string, sizeGB int64) (*siotypes.Volume, error) {
	v, err := w.sioInterface.CreateVolume(name, sizeGB)
	return v, answer(provisionerror.Create, name, err)
}

func (w withoutAnswers) AttachVolume(id sioVolumeID, multiple bool) error {
	return answer(provisionerror.Mount, string(id), w.sioInterface.AttachVolume(id, multiple))
}

func (w withoutAnswers) DetachVolume(id sioVolumeID) error {
	return answer(provisionerror.Unmount, string(id), w.sioInterface.DetachVolume(id))
}

func (w withoutAnswers) DeleteVolume(id sioVolumeID) error {
	return answer(provisionerror.Delete, string(id), w.sioInterface.DeleteVolume(id))
}

func (w withoutAnswers) IID() (string, error) {
	iid, err := w.sioInterface.IID()
	return iid, answer(provisionerror.Mount, "this node", err)
}

func (w withoutAnswers) GetVolumeRefs(id sioVolumeID) (int, error) {
	n, err := w.sioInterface.GetVolumeRefs(id)
	return n, answer(provisionerror.Unmount, string(id), err)
}
