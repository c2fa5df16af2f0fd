// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strictjson reads the repository's own data files.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Decode reads the one JSON value of raw into v. A key that v does not have is an error,
// as it is a typing mistake.
func Decode(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}
