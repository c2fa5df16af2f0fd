// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// withClient gives d a client of the server of config.
func withClient(t *testing.T, d *namespacedResourcesDeleter, config *rest.Config) *namespacedResourcesDeleter {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	d.dynamicClient = client
	return d
}
