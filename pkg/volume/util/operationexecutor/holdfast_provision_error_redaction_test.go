// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/tools/record"
	expandcache "k8s.io/kubernetes/pkg/controller/volume/expand/cache"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/volume"
)

// answeringPlugin is a glusterfs plugin whose server answers with a page.
type answeringPlugin struct {
	volume.ExpandableVolumePlugin
}

func (answeringPlugin) Init(volume.VolumeHost) error { return nil }
func (answeringPlugin) GetPluginName() string        { return "kubernetes.io/glusterfs" }
func (answeringPlugin) CanSupport(*volume.Spec) bool { return true }
func (answeringPlugin) ExpandVolumeDevice(_ *volume.Spec, _, old resource.Quantity) (resource.Quantity, error) {
	return old, errors.New("internal-page")
}

func TestExpandErrorRedaction(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProvisionErrorsWithoutResponse, on)()
			manager := &volume.VolumePluginMgr{}
			if err := manager.InitPlugins([]volume.VolumePlugin{answeringPlugin{}}, nil /* prober */, nil); err != nil {
				t.Fatal(err)
			}
			recorder := record.NewFakeRecorder(10)
			request := &expandcache.PVCWithResizeRequest{PVC: &v1.PersistentVolumeClaim{}, PersistentVolume: &v1.PersistentVolume{}, ExpectedSize: resource.MustParse("1Gi")}
			expand, err := expansion(NewOperationGenerator(nil, manager, recorder, false, nil), request)
			if err != nil {
				t.Fatal(err)
			}
			if err := expand(); err == nil {
				t.Errorf("gate %v: the expansion succeeded", on)
			}
			event := <-recorder.Events
			redacted := strings.Contains(event, "kubernetes.io/glusterfs failed to expand the volume: see the log")
			if !strings.Contains(event, "VolumeResizeFailed ") || on != redacted || on == strings.Contains(event, "internal-page") {
				t.Errorf("gate %v: %q", on, event)
			}
		}()
	}
}
