// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	storageostypes "github.com/storageos/go-api/types"
	"k8s.io/kubernetes/pkg/volume/util/provisionerror"
)

// withoutAnswers is an apiImplementer whose errors do not quote the server: a pod's own
// Secret names the server, and events quote the error.
type withoutAnswers struct {
	api apiImplementer
}

func answer(operation, ref string, err error) error {
	return provisionerror.Answer(storageosPluginName, operation, ref, err)
}

func (w withoutAnswers) Volume(namespace string, ref string) (*storageostypes.Volume, error) {
	v, err := w.api.Volume(namespace, ref)
	return v, answer(provisionerror.Mount, ref, err)
}

func (w withoutAnswers) VolumeCreate(opts storageostypes.VolumeCreateOptions) (*storageostypes.Volume, error) {
	v, err := w.api.VolumeCreate(opts)
	return v, answer(provisionerror.Create, opts.Name, err)
}

func (w withoutAnswers) VolumeMount(opts storageostypes.VolumeMountOptions) error {
	return answer(provisionerror.Mount, opts.Name, w.api.VolumeMount(opts))
}

func (w withoutAnswers) VolumeUnmount(opts storageostypes.VolumeUnmountOptions) error {
	return answer(provisionerror.Unmount, opts.Name, w.api.VolumeUnmount(opts))
}

func (w withoutAnswers) VolumeDelete(opts storageostypes.DeleteOptions) error {
	return answer(provisionerror.Delete, opts.Name, w.api.VolumeDelete(opts))
}
