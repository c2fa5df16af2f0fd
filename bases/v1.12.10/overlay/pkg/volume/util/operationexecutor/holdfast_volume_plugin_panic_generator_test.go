// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import (
	"time"

	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

func (panickingPlugin) NewDeviceMounter() (volume.DeviceMounter, error)     { panic("no mounter") }
func (panickingPlugin) NewDeviceUnmounter() (volume.DeviceUnmounter, error) { panic("no unmounter") }

// prepared is what a generator of this release returns.
func prepared(o volumetypes.GeneratedOperations, err error) (func() error, error) {
	if o.OperationFunc == nil {
		return nil, err
	}
	return func() error {
		_, err := o.OperationFunc()
		return err
	}, err
}

// panickingOperations are those of this release, by name.
func panickingOperations(toMount VolumeToMount, mounted MountedVolume, device AttachedVolume) map[string]panickingOperation {
	device.PluginName = mounted.PluginName
	return map[string]panickingOperation{
		"mount": {"FailedMount", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateMountVolumeFunc(time.Second, toMount, nil, false))
		}},
		"map": {"FailedMapVolume", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateMapVolumeFunc(time.Second, toMount, nil))
		}},
		"expand fs": {"VolumeResizeFailed", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateExpandVolumeFSWithoutUnmountingFunc(toMount, nil))
		}},
		"unmount": {"", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateUnmountVolumeFunc(mounted, nil, "pods"))
		}},
		"unmap": {"", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateUnmapVolumeFunc(mounted, nil))
		}},
		"unmount device": {"", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateUnmountDeviceFunc(device, nil, nil))
		}},
		"unmap device": {"", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateUnmapDeviceFunc(device, nil, nil))
		}},
		"attach": {"", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateAttachVolumeFunc(VolumeToAttach{VolumeName: "holdfast/vol", VolumeSpec: device.VolumeSpec, NodeName: "node"}, nil))
		}},
		"detach": {"", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateDetachVolumeFunc(device, false, nil))
		}},
	}
}
