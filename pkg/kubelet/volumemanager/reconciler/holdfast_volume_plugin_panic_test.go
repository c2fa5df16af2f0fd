// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/scaleio"
	volumetesting "k8s.io/kubernetes/pkg/volume/testing"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// onlyGCE is the fake plugin, which otherwise takes every volume.
type onlyGCE struct {
	*volumetesting.FakeVolumePlugin
}

func (onlyGCE) CanSupport(spec *volume.Spec) bool { return spec.Volume.GCEPersistentDisk != nil }

func (onlyGCE) GetVolumeName(spec *volume.Spec) (string, error) { return spec.Name(), nil }

// One pod's volume makes its plugin panic; those of the others are mounted, and it is
// tried seldom, with an event.
func TestVolumePluginPanic(t *testing.T) {
	_, plugin := volumetesting.GetTestVolumePluginMgr(t)
	plugins := append(scaleio.ProbeVolumePlugins(), onlyGCE{plugin})
	manager := &volume.VolumePluginMgr{}
	if err := manager.InitPlugins(plugins, nil /* prober */, volumetesting.NewFakeVolumeHost("fake", createTestClient(), nil)); err != nil {
		t.Fatal(err)
	}
	dsw, asw := cache.NewDesiredStateOfWorld(manager), cache.NewActualStateOfWorld(nodeName, manager)
	recorder, client := record.NewFakeRecorder(1000), createTestClient()
	executor := operationexecutor.NewOperationExecutor(operationexecutor.NewOperationGenerator(client, manager, recorder, false, volumetesting.NewBlockVolumePathHandler()))
	r := NewReconciler(client, false, reconcilerLoopSleepDuration, reconcilerSyncStatesSleepPeriod, waitForAttachTimeout,
		nodeName, dsw, asw, hasAddedPods, executor, &mount.FakeMounter{}, manager, kubeletPodsDir)
	add := func(name string, source v1.VolumeSource) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v-" + name, VolumeSource: source}}}}
		spec := &volume.Spec{Volume: &pod.Spec.Volumes[0]}
		if _, err := dsw.AddPodToVolume(volumetypes.UniquePodName(pod.UID), pod, spec, spec.Name(), ""); err != nil {
			t.Fatal(err)
		}
	}
	add("broken", v1.VolumeSource{ScaleIO: &v1.ScaleIOVolumeSource{Gateway: "https://h/api", System: "s", VolumeName: "v"}})
	const others = 5
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		add(name, v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: name}})
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); r.Run(stop) }()
	for deadline := time.Now().Add(30 * time.Second); len(asw.GetMountedVolumes()) < others && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	<-done
	if n := len(asw.GetMountedVolumes()); n != others {
		t.Errorf("%d of %d volumes of other pods are mounted", n, others)
	}
	failed := 0
	for len(recorder.Events) > 0 {
		if e := <-recorder.Events; strings.Contains(e, "FailedMount") && strings.Contains(e, `"v-broken"`) {
			failed++
		}
	}
	if failed < 1 || failed > 10 {
		t.Errorf("%d events about the broken volume, want some, with a back-off", failed)
	}
}
