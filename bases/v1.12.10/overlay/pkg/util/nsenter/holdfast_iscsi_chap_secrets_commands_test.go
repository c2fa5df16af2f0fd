//go:build linux
// +build linux

// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nsenter

import (
	"context"
	"testing"

	"k8s.io/utils/exec"
)

// runLogged makes the command in each way that logs it, and says how many these are.
func runLogged(t *testing.T, cmd string, args ...string) int {
	(&Nsenter{executor: exec.New()}).Exec(cmd, args)
	e := NewNsenterExecutor("/rootfs", exec.New())
	e.Command(cmd, args...)
	e.CommandContext(context.Background(), cmd, args...)
	return 3
}
