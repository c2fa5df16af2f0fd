// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	"path"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	utilstrings "k8s.io/kubernetes/pkg/util/strings"
)

var refusedDeviceDirs = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_storageos_device_path_refused_directories_total",
	Help: "Directories of devices that StorageOS servers answered and that are not StorageOS's: the default was used.",
})

func init() {
	prometheus.MustRegister(refusedDeviceDirs)
}

// answeredDeviceDir is the directory of the node in which a volume's ID is a device. Since 1.12
// the server answers it, and with /dev each disk of the node would be a volume. StorageOS has it
// in one of two places: its default, and where a kubelet in a container sees it. The kubelet's
// folder beside the second one, with mounted volumes, is none: pods write there.
func (b *storageosMounter) answeredDeviceDir(dir string) string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.StorageOSDevicePathCheck) {
		return dir
	}
	ofKubelet := path.Join(b.plugin.host.GetPluginDir(utilstrings.EscapeQualifiedNameForDisk(storageosPluginName)), "devices")
	if clean := path.Clean(dir); clean == defaultDeviceDir || clean == ofKubelet {
		return clean
	}
	refusedDeviceDirs.Inc()
	glog.Warningf("volume %q: the StorageOS server answered the directory of devices %.128q: %s is used, as only that and %s are StorageOS's (feature gate %s)",
		b.volName, dir, defaultDeviceDir, ofKubelet, features.StorageOSDevicePathCheck)
	return defaultDeviceDir
}
