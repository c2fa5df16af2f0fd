// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaseidentity says under which name a controller manager takes the lease.
//
// A candidate that reads its own identity in the lease takes that for its own lease and
// renews it. With the host name as the identity, so does a second process on the host, and
// one on another host of that name: both lead (kubernetes/kubernetes#22775).
package leaseidentity

import (
	"k8s.io/apimachinery/pkg/util/uuid"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// New is the identity of this process on the host of that name: the name, "_" and a UUID,
// as in upstream's later releases, or the name alone with the feature gate off. A host name
// has 64 bytes at most, so the identity has 101.
func New(hostname string) string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.UniqueLeaseIdentity) {
		return hostname
	}
	return hostname + "_" + string(uuid.NewUUID())
}
