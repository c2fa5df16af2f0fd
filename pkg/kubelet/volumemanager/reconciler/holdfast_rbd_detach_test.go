// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"testing"

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
