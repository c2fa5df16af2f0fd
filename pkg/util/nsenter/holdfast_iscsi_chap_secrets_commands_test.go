//go:build linux
// +build linux

// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nsenter

import "testing"

// runLogged makes the command in each way that logs it, and says how many these are.
func runLogged(t *testing.T, cmd string, args ...string) int {
	NewNsenter().Exec(cmd, args)
	return 1
}
