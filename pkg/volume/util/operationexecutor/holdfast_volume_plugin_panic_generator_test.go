// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import "time"

// prepared is what a generator of this release returns.
func prepared(f func() error, plugin string, err error) (func() error, error) { return f, err }

// panickingOperations are those of this release, by name.
func panickingOperations(toMount VolumeToMount, mounted MountedVolume, device AttachedVolume) map[string]panickingOperation {
	return map[string]panickingOperation{
		"mount": {"FailedMount", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateMountVolumeFunc(time.Second, toMount, nil, false))
		}},
		"map": {"FailedMount", func(g OperationGenerator) (func() error, error) {
			return prepared(g.GenerateMapVolumeFunc(time.Second, toMount, nil))
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
