// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package spew

import (
	"math/big"
	"reflect"
	"time"

	go14big "github.com/davecgh/go-spew/spew/internal/go14/big"
	go14time "github.com/davecgh/go-spew/spew/internal/go14/time"
)

var (
	timeType = reflect.TypeOf(time.Time{})
	wordType = reflect.TypeOf(big.Word(0))
)

// asGo14 returns what a build with Go 1.4 would have found in the place of v:
// for the two types of the standard library that Kubernetes hashes and that
// have changed since, a mirror of the old type with the same value and name;
// for anything else v itself.
//
// A time.Time that is reached through an unexported field cannot be read and
// is returned as it is. No type that Kubernetes hashes has one.
func asGo14(v reflect.Value) reflect.Value {
	if !v.IsValid() {
		return v
	}
	switch v.Type() {
	case timeType:
		if v.CanInterface() {
			return reflect.ValueOf(go14time.From(v.Interface().(time.Time)))
		}
	case wordType:
		return reflect.ValueOf(go14big.Word(v.Uint()))
	}
	return v
}
