// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	"fmt"
	"path"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var (
	// volumeIDs are UUIDs; what is excluded is all that makes a path of a name.
	volumeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

	refusedVolumeIDs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_storageos_device_path_refused_total",
		Help: "Volume IDs of StorageOS servers that were refused because they are no file name.",
	})
)

func init() {
	prometheus.MustRegister(refusedVolumeIDs)
}

// volumePath is where StorageOS has the volume with that ID, below dir. The Secret of a
// pod's author names the server that answered the ID, so the ID is his word: "../../dev/sda1"
// would be a device of the node. The error goes into the pod's event, so the ID, which
// may be long, is not in it.
func volumePath(dir, id string) (string, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.StorageOSDevicePathCheck) || volumeID.MatchString(id) {
		return path.Join(dir, id), nil
	}
	refusedVolumeIDs.Inc()
	return "", fmt.Errorf("the StorageOS server answered a volume ID that is no file name: correct the server that the volume's secretRef names (feature gate %s)", features.StorageOSDevicePathCheck)
}
