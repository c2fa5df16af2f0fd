// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume"
	volumetesting "k8s.io/kubernetes/pkg/volume/testing"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// An entry is replaced while it is there throughout; what is not there is not made.
func TestCorrectPodInVolume(t *testing.T) {
	mgr, plugin := volumetesting.GetTestVolumePluginMgr(t)
	asw := NewActualStateOfWorld("n", mgr).(*actualStateOfWorld)
	spec := volume.NewSpecFromVolume(&v1.Volume{Name: "vol", VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}})
	if _, err := plugin.GetVolumeName(spec); err != nil {
		t.Fatal(err)
	}
	if asw.CorrectPodInVolume("a", "vol", nil, "outer", "1") {
		t.Error("a volume that is not attached was corrected")
	}
	if err := asw.MarkVolumeAsAttached("vol", spec, "n", ""); err != nil {
		t.Fatal(err)
	}
	if asw.CorrectPodInVolume("a", "vol", nil, "outer", "1") || len(asw.GetMountedVolumes()) > 0 {
		t.Error("a pod that has not mounted the volume was corrected")
	}
	for _, pod := range []volumetypes.UniquePodName{"a", "b"} {
		if err := asw.AddPodToVolume(pod, "u", "vol", nil, nil, "vol", ""); err != nil {
			t.Fatal(err)
		}
	}
	asw.MarkRemountRequired("a")
	mounter := &volumetesting.FakeVolume{}
	if !asw.CorrectPodInVolume("a", "vol", mounter, "outer", "1") {
		t.Error("not corrected")
	}
	got := asw.GetMountedVolumesForPod("a")
	if len(got) != 1 || got[0].OuterVolumeSpecName != "outer" || got[0].VolumeGidValue != "1" || got[0].Mounter != volume.Mounter(mounter) || got[0].PodUID != "u" {
		t.Errorf("corrected to %+v", got)
	}
	if other := asw.GetMountedVolumesForPod("b"); len(other) != 1 || other[0].OuterVolumeSpecName != "vol" {
		t.Errorf("the other pod has %+v", other)
	}
	if there, _, err := asw.PodExistsInVolume("a", "vol"); !there || err != nil {
		t.Errorf("there %v, %v", there, err)
	}
}
