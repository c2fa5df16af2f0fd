// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package glusterfs

import (
	"fmt"
	"strings"

	"k8s.io/kubernetes/pkg/volume"
)

const maskedKey = "<masked>"

// String is what %v and %+v print, without Heketi's key, be it from a Secret or from the
// StorageClass.
func (c provisionerConfig) String() string {
	type fields provisionerConfig
	if c.secretValue != "" {
		c.secretValue = maskedKey
	}
	if c.userKey != "" {
		c.userKey = maskedKey
	}
	return fmt.Sprintf("%+v", fields(c))
}

// withoutKey is options without the key among the StorageClass's parameters.
func withoutKey(options volume.VolumeOptions) volume.VolumeOptions {
	parameters := make(map[string]string, len(options.Parameters))
	for name, value := range options.Parameters {
		if strings.ToLower(name) == "restuserkey" {
			value = maskedKey
		}
		parameters[name] = value
	}
	options.Parameters = parameters
	return options
}
