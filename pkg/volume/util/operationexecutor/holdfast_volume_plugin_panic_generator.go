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
)

// failing, deferred after a recover, is what is returned instead of a panic.
func failing(panicked *error, detail func(error) error, f *func() error) {
	if err := *panicked; err != nil {
		*f = func() error { return detail(err) }
	}
}

// failedMount is failing for a volume of a pod, which gets an event.
func (g *guardedGenerator) failedMount(what string, volumeToMount VolumeToMount) func(error) error {
	return func(err error) error {
		eventErr, detailedErr := volumeToMount.GenerateError(what, err)
		g.recorder.Eventf(volumeToMount.Pod, v1.EventTypeWarning, kevents.FailedMountVolume, "%s", eventErr.Error())
		return detailedErr
	}
}

func (g *guardedGenerator) GenerateMountVolumeFunc(timeout time.Duration, volumeToMount VolumeToMount, world ActualStateOfWorldMounterUpdater, isRemount bool) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, g.failedMount("MountVolume failed", volumeToMount), &f)
	defer recoverPlugin("mount", &panicked)
	return g.OperationGenerator.GenerateMountVolumeFunc(timeout, volumeToMount, world, isRemount)
}

func (g *guardedGenerator) GenerateMapVolumeFunc(timeout time.Duration, volumeToMount VolumeToMount, world ActualStateOfWorldMounterUpdater) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, g.failedMount("MapVolume failed", volumeToMount), &f)
	defer recoverPlugin("map", &panicked)
	return g.OperationGenerator.GenerateMapVolumeFunc(timeout, volumeToMount, world)
}

func (g *guardedGenerator) GenerateVerifyControllerAttachedVolumeFunc(volumeToMount VolumeToMount, node types.NodeName, world ActualStateOfWorldAttacherUpdater) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, g.failedMount("VerifyControllerAttachedVolume failed", volumeToMount), &f)
	defer recoverPlugin("verify_controller_attached", &panicked)
	return g.OperationGenerator.GenerateVerifyControllerAttachedVolumeFunc(volumeToMount, node, world)
}

func (g *guardedGenerator) GenerateUnmountVolumeFunc(mounted MountedVolume, world ActualStateOfWorldMounterUpdater, podsDir string) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return mounted.GenerateErrorDetailed("UnmountVolume failed", err) }, &f)
	defer recoverPlugin("unmount", &panicked)
	return g.OperationGenerator.GenerateUnmountVolumeFunc(mounted, world, podsDir)
}

func (g *guardedGenerator) GenerateUnmapVolumeFunc(mounted MountedVolume, world ActualStateOfWorldMounterUpdater) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return mounted.GenerateErrorDetailed("UnmapVolume failed", err) }, &f)
	defer recoverPlugin("unmap", &panicked)
	return g.OperationGenerator.GenerateUnmapVolumeFunc(mounted, world)
}

func (g *guardedGenerator) GenerateUnmountDeviceFunc(device AttachedVolume, world ActualStateOfWorldMounterUpdater, mounter mount.Interface) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return device.GenerateErrorDetailed("UnmountDevice failed", err) }, &f)
	defer recoverPlugin("unmount_device", &panicked)
	return g.OperationGenerator.GenerateUnmountDeviceFunc(device, world, mounter)
}

func (g *guardedGenerator) GenerateUnmapDeviceFunc(device AttachedVolume, world ActualStateOfWorldMounterUpdater, mounter mount.Interface) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return device.GenerateErrorDetailed("UnmapDevice failed", err) }, &f)
	defer recoverPlugin("unmap_device", &panicked)
	return g.OperationGenerator.GenerateUnmapDeviceFunc(device, world, mounter)
}

func (g *guardedGenerator) GenerateAttachVolumeFunc(volumeToAttach VolumeToAttach, world ActualStateOfWorldAttacherUpdater) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return volumeToAttach.GenerateErrorDetailed("AttachVolume failed", err) }, &f)
	defer recoverPlugin("attach", &panicked)
	return g.OperationGenerator.GenerateAttachVolumeFunc(volumeToAttach, world)
}

func (g *guardedGenerator) GenerateDetachVolumeFunc(volumeToDetach AttachedVolume, verifySafeToDetach bool, world ActualStateOfWorldAttacherUpdater) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return volumeToDetach.GenerateErrorDetailed("DetachVolume failed", err) }, &f)
	defer recoverPlugin("detach", &panicked)
	return g.OperationGenerator.GenerateDetachVolumeFunc(volumeToDetach, verifySafeToDetach, world)
}

func (g *guardedGenerator) GenerateVolumesAreAttachedFunc(attached []AttachedVolume, node types.NodeName, world ActualStateOfWorldAttacherUpdater) (f func() error, err error) {
	defer recoverPlugin("volumes_are_attached", &err)
	return g.OperationGenerator.GenerateVolumesAreAttachedFunc(attached, node, world)
}

func (g *guardedGenerator) GenerateExpandVolumeFunc(request *expandcache.PVCWithResizeRequest, resizes expandcache.VolumeResizeMap) (f func() error, plugin string, err error) {
	var panicked error
	defer failing(&panicked, func(err error) error { return err }, &f)
	defer recoverPlugin("expand", &panicked)
	return g.OperationGenerator.GenerateExpandVolumeFunc(request, resizes)
}
