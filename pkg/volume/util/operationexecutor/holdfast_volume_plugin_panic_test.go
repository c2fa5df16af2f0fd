// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import (
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/tools/record"
	expandcache "k8s.io/kubernetes/pkg/controller/volume/expand/cache"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/volume"
)

// panickingPlugin panics in whatever reads a volume.
type panickingPlugin struct {
	volume.AttachableVolumePlugin
	volume.BlockVolumePlugin
	volume.ExpandableVolumePlugin
}

func (panickingPlugin) Init(volume.VolumeHost) error         { return nil }
func (panickingPlugin) GetPluginName() string                { return "holdfast/panics" }
func (panickingPlugin) CanSupport(*volume.Spec) bool         { return true }
func (panickingPlugin) RequiresRemount() bool                { return false }
func (panickingPlugin) SupportsMountOption() bool            { return true }
func (panickingPlugin) SupportsBulkVolumeVerification() bool { return true }
func (panickingPlugin) ConstructVolumeSpec(string, string) (*volume.Spec, error) {
	panic(strings.Repeat("long", 1000))
}
func (panickingPlugin) GetVolumeName(*volume.Spec) (string, error) { panic("a name") }
func (panickingPlugin) NewMounter(*volume.Spec, *v1.Pod, volume.VolumeOptions) (volume.Mounter, error) {
	var none *v1.LocalObjectReference
	return nil, &volumeError{none.Name}
}
func (panickingPlugin) NewUnmounter(string, types.UID) (volume.Unmounter, error) {
	panic("no unmounter")
}
func (panickingPlugin) NewAttacher() (volume.Attacher, error) { panic("no attacher") }
func (panickingPlugin) NewDetacher() (volume.Detacher, error) { panic("no detacher") }
func (panickingPlugin) NewBlockVolumeMapper(*volume.Spec, *v1.Pod, volume.VolumeOptions) (volume.BlockVolumeMapper, error) {
	panic(strings.Repeat("long", 1000))
}
func (panickingPlugin) NewBlockVolumeUnmapper(string, types.UID) (volume.BlockVolumeUnmapper, error) {
	panic("no unmapper")
}

// panickingOperation is one whose preparation calls the plugin, and the reason of the event.
type panickingOperation struct {
	event   string
	prepare func(OperationGenerator) (func() error, error)
}

type volumeError struct{ text string }

func (e *volumeError) Error() string { return e.text }

// TestVolumePluginPanic: each operation whose preparation calls the plugin, with the
// gate on: no panic, and an error when it is run. Off: the panic is the caller's.
func TestVolumePluginPanic(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}}
	spec := volume.NewSpecFromVolume(&v1.Volume{Name: "vol"})
	pv := volume.NewSpecFromPersistentVolume(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}, false)
	toMount := VolumeToMount{VolumeName: "holdfast/vol", PodName: "uid", Pod: pod, VolumeSpec: spec, OuterVolumeSpecName: "vol", PluginIsAttachable: true}
	mounted := MountedVolume{PodName: "uid", PodUID: "uid", VolumeName: "holdfast/vol", InnerVolumeSpecName: "vol", PluginName: "holdfast/panics"}
	device := AttachedVolume{VolumeName: "holdfast/vol", VolumeSpec: pv, NodeName: "node"}
	for name, o := range panickingOperations(toMount, mounted, device) {
		for _, on := range []bool{true, false} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.VolumePluginPanicRecovery, on)()
				manager := &volume.VolumePluginMgr{}
				if err := manager.InitPlugins([]volume.VolumePlugin{panickingPlugin{}}, nil /* prober */, nil); err != nil {
					t.Fatal(err)
				}
				recorder := record.NewFakeRecorder(10)
				g := NewOperationGenerator(nil, manager, recorder, false, nil)
				panicked := func() (p bool) {
					defer func() { p = recover() != nil }()
					f, err := o.prepare(g)
					if err == nil {
						err = f()
					}
					if err == nil || !strings.Contains(err.Error(), "the volume plugin panicked: ") || len(err.Error()) > 600 {
						t.Errorf("%s, gate %v: error %.700v", name, on, err)
					}
					return false
				}()
				if panicked == on {
					t.Errorf("%s, gate %v: panicked: %v", name, on, panicked)
				}
				if events := len(recorder.Events); on && (events == 1) != (o.event != "") {
					t.Errorf("%s: %d events", name, events)
				} else if events == 1 {
					if e := <-recorder.Events; !strings.Contains(e, o.event) || !strings.Contains(e, `volume "vol"`) || len(e) > 600 {
						t.Errorf("%s: event %q", name, e)
					}
				}
			}()
		}
	}
	if _, err := NewMounter(panickingPlugin{}, spec, pod, volume.VolumeOptions{}); err == nil || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("NewMounter: %v", err)
	}
}

// What does not panic is what the generator below says.
func TestVolumePluginPanicNone(t *testing.T) {
	manager := &volume.VolumePluginMgr{}
	if err := manager.InitPlugins([]volume.VolumePlugin{panickingPlugin{}}, nil /* prober */, nil); err != nil {
		t.Fatal(err)
	}
	g := NewOperationGenerator(nil, manager, record.NewFakeRecorder(10), false, nil)
	if g.GetVolumePluginMgr() != manager {
		t.Error("another plugin manager")
	}
	f, err := prepared(g.GenerateExpandVolumeFunc(&expandcache.PVCWithResizeRequest{PVC: &v1.PersistentVolumeClaim{}, PersistentVolume: &v1.PersistentVolume{}}, nil))
	if f == nil || err != nil {
		t.Errorf("%v, %v", f != nil, err)
	}
	_, err = prepared(g.GenerateUnmountVolumeFunc(MountedVolume{PluginName: "none"}, nil, "pods"))
	if err == nil || !strings.Contains(err.Error(), "FindPluginByName") {
		t.Errorf("%v", err)
	}
}
