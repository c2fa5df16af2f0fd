// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toolchain has the tests of what building 2018's code with today's Go
// brings with it: which peers and certificates still work, which bytes are
// still written, which C library a binary asks for. docs/design/toolchain.md
// is the page that they hold true. The tests run with the GODEBUG settings of
// the root's go.mod, as the binaries do.
package toolchain
