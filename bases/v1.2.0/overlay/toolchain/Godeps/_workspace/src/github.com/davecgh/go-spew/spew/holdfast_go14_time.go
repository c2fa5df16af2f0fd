// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package spew

import (
	"reflect"
	"time"

	go14 "github.com/davecgh/go-spew/spew/internal/go14/time"
)

var timeType = reflect.TypeOf(time.Time{})

// asGo14 returns what a Go 1.4 build would have found in v: for a time.Time
// the fields that the type had then, for anything else v itself. Both types
// print as time.Time.
//
// A time that is reached through an unexported field cannot be read and is
// returned as it is. No type that Kubernetes hashes has one.
func asGo14(v reflect.Value) reflect.Value {
	if v.Type() != timeType || !v.CanInterface() {
		return v
	}
	return reflect.ValueOf(go14.From(v.Interface().(time.Time)))
}
