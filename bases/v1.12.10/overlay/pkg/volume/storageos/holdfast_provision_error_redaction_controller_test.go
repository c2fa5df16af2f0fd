// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	"errors"
	"strings"
	"testing"

	storageostypes "github.com/storageos/go-api/types"
)

func (r refusing) Controller(string) (*storageostypes.Controller, error) { return nil, r.err }

func TestStorageOSControllerAnswer(t *testing.T) {
	_, err := withoutAnswers{refusing{errors.New("internal-page")}}.Controller("node")
	if err == nil || strings.Contains(err.Error(), "internal-page") {
		t.Errorf("%v", err)
	}
}
