// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/kubernetes/fake"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/features"
	vol "k8s.io/kubernetes/pkg/volume"
)

// answeringPlugin is a glusterfs plugin whose server answers with a page.
type answeringPlugin struct {
	mockVolumePlugin
}

var errAnswer = errors.New("internal-page")

func (*answeringPlugin) GetPluginName() string     { return "kubernetes.io/glusterfs" }
func (*answeringPlugin) SupportsMountOption() bool { return true }
func (p *answeringPlugin) NewProvisioner(vol.VolumeOptions) (vol.Provisioner, error) {
	return p, nil
}
func (p *answeringPlugin) NewDeleter(*vol.Spec) (vol.Deleter, error) { return p, nil }
func (*answeringPlugin) Delete() error                               { return errAnswer }

func TestProvisionErrorRedaction(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProvisionErrorsWithoutResponse, on)()
			class, reclaim := "answering", v1.PersistentVolumeReclaimDelete
			claim := newClaim("claim", "uid", "1Gi", "", v1.ClaimPending, &class)
			volume := newVolume("volume", "1Gi", "gone-uid", "gone", v1.VolumeReleased, reclaim, class, annDynamicallyProvisioned)
			volume.Annotations[annDynamicallyProvisioned] = "kubernetes.io/glusterfs"
			client := fake.NewSimpleClientset(claim, volume)
			ctrl, err := newTestController(client, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := ctrl.volumePluginMgr.InitPlugins([]vol.VolumePlugin{&answeringPlugin{}}, nil /* prober */, ctrl); err != nil {
				t.Fatal(err)
			}
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			indexer.Add(&storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "kubernetes.io/glusterfs", ReclaimPolicy: &reclaim})
			ctrl.classLister = storagelisters.NewStorageClassLister(indexer)

			ctrl.provisionClaimOperation(claim)
			if err := deleteVolume(ctrl, volume); err == nil {
				t.Errorf("gate %v: the deletion succeeded", on)
			}
			got, err := client.CoreV1().PersistentVolumes().Get("volume", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			shown := map[string]string{"status": got.Status.Message}
			events := ctrl.eventRecorder.(*record.FakeRecorder).Events
			for len(events) > 0 {
				e := <-events
				for _, reason := range []string{"ProvisioningFailed", "VolumeFailedDelete"} {
					if strings.Contains(e, " "+reason+" ") {
						shown[reason] = e
					}
				}
			}
			for what, failed := range map[string]string{"ProvisioningFailed": "create", "VolumeFailedDelete": "delete", "status": "delete"} {
				redacted := strings.Contains(shown[what], "kubernetes.io/glusterfs failed to "+failed+" the volume: see the log")
				if on != redacted || on == strings.Contains(shown[what], errAnswer.Error()) {
					t.Errorf("gate %v: %s: %q", on, what, shown[what])
				}
			}
			if !strings.Contains(shown["ProvisioningFailed"], `StorageClass "answering"`) {
				t.Errorf("gate %v: %q does not name the class", on, shown["ProvisioningFailed"])
			}
		}()
	}
}
