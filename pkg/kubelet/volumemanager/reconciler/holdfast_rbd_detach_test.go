// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/rbd"
	volumetesting "k8s.io/kubernetes/pkg/volume/testing"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// The first sync of a kubelet leaves a live pod's desired spec, with its credentials; a pod
// that is gone gets the reconstructed one, so that it is unmounted.
func TestDesiredSpecOfLivePod(t *testing.T) {
	for _, on := range []bool{true, false} {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.RBDRobustDetach, on)); err != nil {
			t.Fatal(err)
		}
		defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.RBDRobustDetach))
		mgr := &volume.VolumePluginMgr{}
		if err := mgr.InitPlugins(rbd.ProbeVolumePlugins(), nil, volumetesting.NewFakeVolumeHost("", nil, nil)); err != nil {
			t.Fatal(err)
		}
		dsw := cache.NewDesiredStateOfWorld(mgr)
		rc := &reconciler{
			kubeClient:          fake.NewSimpleClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}),
			nodeName:            "n",
			desiredStateOfWorld: dsw,
			actualStateOfWorld:  cache.NewActualStateOfWorld("n", mgr),
		}
		spec := func(secret string) *volume.Spec {
			source := &v1.RBDVolumeSource{CephMonitors: []string{"10.0.0.1:6789"}, RBDPool: "rbd", RBDImage: "img"}
			if secret != "" {
				source.SecretRef = &v1.LocalObjectReference{Name: secret}
			}
			return volume.NewSpecFromVolume(&v1.Volume{Name: "vol", VolumeSource: v1.VolumeSource{RBD: source}})
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "live", UID: "live"}}
		name, err := dsw.AddPodToVolume("live", pod, spec("s"), "outer", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, uid := range []string{"live", "gone"} {
			rc.updateStates(map[v1.UniqueVolumeName]*reconstructedVolume{name: {
				volumeName: name, podName: volumetypes.UniquePodName(uid), volumeSpec: spec(""), outerVolumeSpecName: "vol",
				pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, pluginIsAttachable: true,
			}})
		}
		pods := map[volumetypes.UniquePodName]bool{}
		for _, v := range dsw.GetVolumesToMount() {
			pods[v.PodName] = true
			if got := v.VolumeSpec.Volume.RBD.SecretRef != nil; v.PodName == "live" && got != on {
				t.Errorf("gate %v: the live pod's volume has a secret: %v", on, got)
			}
			if v.PodName == "live" && on && (v.Pod.Name != "live" || v.OuterVolumeSpecName != "outer") {
				t.Errorf("the live pod is %q, its volume %q", v.Pod.Name, v.OuterVolumeSpecName)
			}
		}
		if !pods["live"] || !pods["gone"] {
			t.Errorf("gate %v: desired are %v", on, pods)
		}
		for _, uid := range []volumetypes.UniquePodName{"live", "gone"} {
			if there, _, _ := rc.actualStateOfWorld.PodExistsInVolume(uid, name); !there {
				t.Errorf("gate %v: %s is not in the actual state", on, uid)
			}
		}
	}
}

// rbdMounter has what a reconstructed volume's mounter says of it.
type rbdMounter struct {
	volume.Mounter
	readOnly bool
}

func (m rbdMounter) GetAttributes() volume.Attributes { return volume.Attributes{ReadOnly: m.readOnly} }

// mounts mounts at once, as at a node where everything is mounted, and counts.
type mounts struct {
	operationexecutor.OperationExecutor
	n int
}

func (m *mounts) IsOperationPending(v1.UniqueVolumeName, volumetypes.UniquePodName) bool {
	return false
}

func (m *mounts) UnmountVolume(v operationexecutor.MountedVolume, asw operationexecutor.ActualStateOfWorldMounterUpdater, _ string) error {
	return asw.MarkVolumeAsUnmounted(v.PodName, v.VolumeName)
}

func (m *mounts) MountVolume(_ time.Duration, v operationexecutor.VolumeToMount, asw operationexecutor.ActualStateOfWorldMounterUpdater, _ bool) error {
	m.n++
	readOnly, _ := rbdReadOnly(v.VolumeSpec)
	return asw.MarkVolumeAsMounted(v.PodName, v.Pod.UID, v.VolumeName, rbdMounter{readOnly: readOnly}, nil, v.OuterVolumeSpecName, v.VolumeGidValue)
}

// A live pod's reconstructed volume ends up as the pod has it, by one mount; one that was
// reconstructed rightly is left alone.
func TestReconstructedOfLivePod(t *testing.T) {
	source := v1.RBDVolumeSource{CephMonitors: []string{"10.0.0.1:6789"}, RBDPool: "rbd", RBDImage: "img"}
	inline := volume.NewSpecFromVolume(&v1.Volume{Name: "vol", VolumeSource: v1.VolumeSource{RBD: &source}})
	claim := func(readOnly bool) *volume.Spec {
		return volume.NewSpecFromPersistentVolume(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol"},
			Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{
				CephMonitors: source.CephMonitors, RBDPool: "rbd", RBDImage: "img"}}}}, readOnly)
	}
	for name, c := range map[string]struct {
		on         bool
		spec       *volume.Spec
		outer, gid string // of the pod; reconstructed are "vol" and none
		others     string // the name of the volume in another live pod
		late       bool   // the pod's volume is known after the first sync only
		mounts     int
	}{
		"the same":          {true, inline, "vol", "", "", false, 0},
		"two pods":          {true, inline, "vol", "", "other", false, 0},
		"known late":        {true, claim(false), "data", "", "", true, 0},
		"read-only claim":   {true, claim(true), "data", "", "", false, 0},
		"group":             {true, claim(false), "data", "1234", "", false, 0},
		"gate off, a group": {false, claim(false), "data", "1234", "", false, 0},
	} {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.RBDRobustDetach, c.on)); err != nil {
			t.Fatal(err)
		}
		defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.RBDRobustDetach))
		mgr := &volume.VolumePluginMgr{}
		if err := mgr.InitPlugins(rbd.ProbeVolumePlugins(), nil, volumetesting.NewFakeVolumeHost("", nil, nil)); err != nil {
			t.Fatal(err)
		}
		dsw, asw, mounts := cache.NewDesiredStateOfWorld(mgr), cache.NewActualStateOfWorld("n", mgr), &mounts{}
		rc := &reconciler{kubeClient: fake.NewSimpleClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}), nodeName: "n",
			controllerAttachDetachEnabled: true, desiredStateOfWorld: dsw, actualStateOfWorld: asw, operationExecutor: mounts}
		add := func(uid, outer, gid string, spec *volume.Spec) v1.UniqueVolumeName {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
			unique, err := dsw.AddPodToVolume(volumetypes.UniquePodName(uid), pod, spec, outer, gid)
			if err != nil {
				t.Fatal(err)
			}
			return unique
		}
		if c.others != "" {
			add("b", c.others, "", c.spec)
		}
		unique := v1.UniqueVolumeName("kubernetes.io/rbd/[10.0.0.1:6789]:img")
		if !c.late {
			if got := add("a", c.outer, c.gid, c.spec); got != unique {
				t.Fatalf("%s: the volume is %s", name, got)
			}
		}
		reconstructed := func(uid string) {
			if err := rc.updateStates(map[v1.UniqueVolumeName]*reconstructedVolume{unique: {
				volumeName: unique, podName: volumetypes.UniquePodName(uid), volumeSpec: inline, outerVolumeSpecName: "vol",
				pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, pluginIsAttachable: true, mounter: rbdMounter{},
			}}); err != nil {
				t.Fatal(err)
			}
		}
		reconstructed("a")
		if c.others != "" {
			reconstructed("b")
			// The order in which pods are looked at is random.
			asw.DeletePodFromVolume("b", unique)
			asw.AddPodToVolume("b", "b", unique, rbdMounter{}, nil, "vol", "")
			asw.DeletePodFromVolume("a", unique)
			asw.AddPodToVolume("a", "a", unique, rbdMounter{}, nil, "other", "")
		}
		if c.late {
			add("a", c.outer, c.gid, c.spec)
		}
		for i := 0; i < 3; i++ {
			rc.reconcile()
		}
		if mounts.n != c.mounts {
			t.Errorf("%s: %d mounts, want %d", name, mounts.n, c.mounts)
		}
		wantReadOnly, _ := rbdReadOnly(c.spec)
		for uid, outer := range map[volumetypes.UniquePodName]string{"a": c.outer, "b": c.others} {
			for _, m := range asw.GetMountedVolumesForPod(uid) {
				if c.on && (m.OuterVolumeSpecName != outer || m.VolumeGidValue != c.gid || m.Mounter.GetAttributes().ReadOnly != wantReadOnly) {
					t.Errorf("%s: pod %s has %q, group %q, read-only %v", name, uid, m.OuterVolumeSpecName, m.VolumeGidValue, m.Mounter.GetAttributes().ReadOnly)
				}
			}
			if there, _, _ := asw.PodExistsInVolume(uid, unique); outer != "" && !there {
				t.Errorf("%s: pod %s has no volume", name, uid)
			}
		}
	}
}
