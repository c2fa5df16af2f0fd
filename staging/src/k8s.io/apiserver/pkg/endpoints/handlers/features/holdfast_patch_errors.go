// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features has the gates of what ours changes in the kube-apiserver. They
// are not in k8s.io/apiserver/pkg/features, which the kubelet and the
// kube-controller-manager link too: those would list gates that they do not have.
package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// PatchClientErrors answers a PATCH that cannot be read with 400, and one that does
// not apply, or whose result has a wrong type, with 422. Off: 500, as stock.
const PatchClientErrors utilfeature.Feature = "PatchClientErrors"

// RollbackNamedByURL refuses a rollback whose body names another Deployment than its
// URL, which is the one that the user was authorised for. Off: the Deployment that
// the body names is rolled back, as stock.
const RollbackNamedByURL utilfeature.Feature = "RollbackNamedByURL"

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		PatchClientErrors:  {Default: true, PreRelease: utilfeature.Beta},
		RollbackNamedByURL: {Default: true, PreRelease: utilfeature.Beta},
	}); err != nil {
		panic(err)
	}
}
