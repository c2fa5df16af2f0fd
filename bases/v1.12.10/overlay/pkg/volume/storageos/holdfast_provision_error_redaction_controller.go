// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	storageostypes "github.com/storageos/go-api/types"
	"k8s.io/kubernetes/pkg/volume/util/provisionerror"
)

// Controller is asked where the node has the devices. Its error is logged only.
func (w withoutAnswers) Controller(ref string) (*storageostypes.Controller, error) {
	c, err := w.api.Controller(ref)
	return c, answer(provisionerror.Mount, ref, err)
}
