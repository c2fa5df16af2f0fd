// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// withClient gives d a client of the server of config.
func withClient(t *testing.T, d *namespacedResourcesDeleter, config *rest.Config) *namespacedResourcesDeleter {
	d.clientPool = dynamic.NewClientPool(config, legacyscheme.Registry.RESTMapper(), dynamic.LegacyAPIPathResolverFunc)
	return d
}
