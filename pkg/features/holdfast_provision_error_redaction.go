// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// ProvisionErrorsWithoutResponse keeps what a storage server answered out of events and
// the status of volumes: a StorageClass names the server, and the controller manager
// asks it from the control plane's network (CVE-2020-8555, CVE-2025-13281). The answer
// is in the log. Off: the error is shown whole.
const ProvisionErrorsWithoutResponse utilfeature.Feature = "ProvisionErrorsWithoutResponse"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		ProvisionErrorsWithoutResponse: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
