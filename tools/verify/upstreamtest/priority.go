// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"runtime"
	"syscall"
)

// usual is the nice value of a program that nobody has given another one.
const usual = 0

// atUsualPriority calls start, whose process then has the usual priority, also where this one has
// a low one: tests that wait for less than a second starve beside the labs, each time. A user who
// may not raise a priority keeps the low one.
func atUsualPriority(start func() error) error {
	// Linux has a priority of each thread, and the new process gets that of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	// The system call answers 40 to 1 for nice values of -20 to 19, so that none looks like an error.
	if nice := 20 - raw; err == nil && nice > usual && syscall.Setpriority(syscall.PRIO_PROCESS, 0, usual) == nil {
		defer syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice)
	}
	return start()
}
