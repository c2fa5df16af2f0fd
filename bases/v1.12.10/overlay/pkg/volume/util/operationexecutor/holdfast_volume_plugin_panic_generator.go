// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import (
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	expandcache "k8s.io/kubernetes/pkg/controller/volume/expand/cache"
	kevents "k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/util/mount"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// failing, deferred after a recover, is what is returned instead of a panic.
func failing(panicked *error, detail func(error) error, o *volumetypes.GeneratedOperations) {
	if err := *panicked; err != nil {
		*o = volumetypes.GeneratedOperations{OperationFunc: func() (eventErr, detailedErr error) {
			detailedErr = detail(err)
			return detailedErr, detailedErr
		}}
	}
}

// failed is failing for a volume of a pod, which gets an event of the reason.
func (g *guardedGenerator) failed(reason, what string, volumeToMount VolumeToMount) func(error) error {
	return func(err error) error {
		eventErr, detailedErr := volumeToMount.GenerateError(what, err)
		g.recorder.Eventf(volumeToMount.Pod, v1.EventTypeWarning, reason, "%s", eventErr.Error())
		return detailedErr
	}
}

func (g *guardedGenerator) GenerateMountVolumeFunc(timeout time.Duration, volumeToMount VolumeToMount, world ActualStateOfWorldMounterUpdater, isRemount bool) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, g.failed(kevents.FailedMountVolume, "MountVolume failed", volumeToMount), &o)
	defer recoverPlugin("mount", &panicked)
	return g.OperationGenerator.GenerateMountVolumeFunc(timeout, volumeToMount, world, isRemount)
}

func (g *guardedGenerator) GenerateMapVolumeFunc(timeout time.Duration, volumeToMount VolumeToMount, world ActualStateOfWorldMounterUpdater) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, g.failed(kevents.FailedMapVolume, "MapVolume failed", volumeToMount), &o)
	defer recoverPlugin("map", &panicked)
	return g.OperationGenerator.GenerateMapVolumeFunc(timeout, volumeToMount, world)
}

func (g *guardedGenerator) GenerateVerifyControllerAttachedVolumeFunc(volumeToMount VolumeToMount, node types.NodeName, world ActualStateOfWorldAttacherUpdater) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, g.failed(kevents.FailedMountVolume, "VerifyControllerAttachedVolume failed", volumeToMount), &o)
	defer recoverPlugin("verify_controller_attached", &panicked)
	return g.OperationGenerator.GenerateVerifyControllerAttachedVolumeFunc(volumeToMount, node, world)
}

func (g *guardedGenerator) GenerateExpandVolumeFSWithoutUnmountingFunc(volumeToMount VolumeToMount, world ActualStateOfWorldMounterUpdater) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, g.failed(kevents.VolumeResizeFailed, "VolumeFSResize failed", volumeToMount), &o)
	defer recoverPlugin("expand_fs", &panicked)
	return g.OperationGenerator.GenerateExpandVolumeFSWithoutUnmountingFunc(volumeToMount, world)
}

func (g *guardedGenerator) GenerateUnmountVolumeFunc(mounted MountedVolume, world ActualStateOfWorldMounterUpdater, podsDir string) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return mounted.GenerateErrorDetailed("UnmountVolume failed", err) }, &o)
	defer recoverPlugin("unmount", &panicked)
	return g.OperationGenerator.GenerateUnmountVolumeFunc(mounted, world, podsDir)
}

func (g *guardedGenerator) GenerateUnmapVolumeFunc(mounted MountedVolume, world ActualStateOfWorldMounterUpdater) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return mounted.GenerateErrorDetailed("UnmapVolume failed", err) }, &o)
	defer recoverPlugin("unmap", &panicked)
	return g.OperationGenerator.GenerateUnmapVolumeFunc(mounted, world)
}

func (g *guardedGenerator) GenerateUnmountDeviceFunc(device AttachedVolume, world ActualStateOfWorldMounterUpdater, mounter mount.Interface) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return device.GenerateErrorDetailed("UnmountDevice failed", err) }, &o)
	defer recoverPlugin("unmount_device", &panicked)
	return g.OperationGenerator.GenerateUnmountDeviceFunc(device, world, mounter)
}

func (g *guardedGenerator) GenerateUnmapDeviceFunc(device AttachedVolume, world ActualStateOfWorldMounterUpdater, mounter mount.Interface) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return device.GenerateErrorDetailed("UnmapDevice failed", err) }, &o)
	defer recoverPlugin("unmap_device", &panicked)
	return g.OperationGenerator.GenerateUnmapDeviceFunc(device, world, mounter)
}

func (g *guardedGenerator) GenerateAttachVolumeFunc(volumeToAttach VolumeToAttach, world ActualStateOfWorldAttacherUpdater) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return volumeToAttach.GenerateErrorDetailed("AttachVolume failed", err) }, &o)
	defer recoverPlugin("attach", &panicked)
	return g.OperationGenerator.GenerateAttachVolumeFunc(volumeToAttach, world)
}

func (g *guardedGenerator) GenerateDetachVolumeFunc(volumeToDetach AttachedVolume, verifySafeToDetach bool, world ActualStateOfWorldAttacherUpdater) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return volumeToDetach.GenerateErrorDetailed("DetachVolume failed", err) }, &o)
	defer recoverPlugin("detach", &panicked)
	return g.OperationGenerator.GenerateDetachVolumeFunc(volumeToDetach, verifySafeToDetach, world)
}

func (g *guardedGenerator) GenerateVolumesAreAttachedFunc(attached []AttachedVolume, node types.NodeName, world ActualStateOfWorldAttacherUpdater) (o volumetypes.GeneratedOperations, err error) {
	defer recoverPlugin("volumes_are_attached", &err)
	return g.OperationGenerator.GenerateVolumesAreAttachedFunc(attached, node, world)
}

func (g *guardedGenerator) GenerateExpandVolumeFunc(request *expandcache.PVCWithResizeRequest, resizes expandcache.VolumeResizeMap) (o volumetypes.GeneratedOperations, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return err }, &o)
	defer recoverPlugin("expand", &panicked)
	return g.OperationGenerator.GenerateExpandVolumeFunc(request, resizes)
}
