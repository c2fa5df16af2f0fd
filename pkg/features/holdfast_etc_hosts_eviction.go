// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// CountEtcHosts makes the kubelet count a pod's /etc/hosts as its ephemeral storage, for
// evictions and in /stats/summary (CVE-2020-8557). Off: what a pod writes there is no
// pod's.
const CountEtcHosts utilfeature.Feature = "CountEtcHosts"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		CountEtcHosts: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
