// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	storageostypes "github.com/storageos/go-api/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
)

// elsewhere is a StorageOS server that answers a directory of devices.
type elsewhere struct {
	apiImplementer
	dir string
}

func (e elsewhere) Controller(string) (*storageostypes.Controller, error) {
	return &storageostypes.Controller{DeviceDir: e.dir}, nil
}

func TestStorageOSDeviceDir(t *testing.T) {
	host := volumetest.NewFakeVolumeHost("/var/lib/kubelet", nil, nil)
	b := mounterOf("", &storageos{volName: "v", plugin: &storageosPlugin{host: host}})
	count := func() float64 {
		var m dto.Metric
		if err := refusedDeviceDirs.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	plugin := host.GetPluginDir("kubernetes.io~storageos")
	for dir, own := range map[string]bool{
		"":                                  true, // not answered
		defaultDeviceDir:                    true,
		defaultDeviceDir + "/":              true,
		plugin + "/devices":                 true,
		"/dev":                              false,
		"dev":                               false,
		".":                                 false,
		defaultDeviceDir + "/..":            false,
		defaultDeviceDir + "/../../../dev":  false,
		plugin:                              false,
		plugin + "/mounts/pv.ns.v":          false,
		plugin + "/devices/../mounts/pv":    false,
		"/var/lib/storageos/data":           false,
		"/var/lib/storageos/volumes/sub":    false,
		"/var/lib/kubelet/pods/x/volumes/y": false,
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.StorageOSDevicePathCheck, on)()
				before := count()
				got := (&storageosUtil{api: elsewhere{dir: dir}}).DeviceDir(b)
				if refused := count() - before; (refused == 1) != (on && !own) {
					t.Errorf("gate %v, %q: counted %v", on, dir, refused)
				}
				want := dir
				if on && !own || dir == "" {
					want = defaultDeviceDir
				}
				if got != want && got+"/" != want {
					t.Errorf("gate %v, %q: %q, want %q", on, dir, got, want)
				}
			}()
		}
	}
}
