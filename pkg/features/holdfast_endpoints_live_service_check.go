// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// EndpointsLiveServiceCheck makes the endpoints controller ask the API server for
	// a Service that its cache lacks before it deletes the Endpoints of that name.
	//
	// beta: v1.9.11+holdfast.1
	EndpointsLiveServiceCheck utilfeature.Feature = "EndpointsLiveServiceCheck"
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		EndpointsLiveServiceCheck: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
