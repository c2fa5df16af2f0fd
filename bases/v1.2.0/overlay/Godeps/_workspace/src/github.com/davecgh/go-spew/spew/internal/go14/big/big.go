// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package big mirrors the one type of math/big that a go-spew dump prints
// otherwise than a build with Go 1.4 did.
//
// The package has to be called "big", because a dump shows the name.
package big

// Word is a digit of a big.Int. It was a uintptr, which a dump prints in
// hexadecimal, and is a uint today, printed in decimal. resource.Quantity
// holds a big.Int.
type Word uintptr
