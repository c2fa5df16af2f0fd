// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// KubeletHealthzOwnMux makes the healthz port of the kubelet answer /healthz only. Off:
// it also answers what the libraries hang below /debug, profiles among it, and asks
// nobody who they are (CVE-2019-11248).
const KubeletHealthzOwnMux utilfeature.Feature = "KubeletHealthzOwnMux"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		KubeletHealthzOwnMux: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
