// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux
// +build linux

package fs

import "github.com/opencontainers/runc/libcontainer/configs"

// KernelMemoryOnRequest says whether kernel memory is accounted only in cgroups that get a limit of
// it. nil: in each cgroup with a limit of memory, as upstream. It is asked for each cgroup that is
// made, and set before the first one.
var KernelMemoryOnRequest func() bool

// enableKernelMemory is replaced by the tests.
var enableKernelMemory = EnableKernelMemoryAccounting

// kernelMemoryAccounting turns the accounting on in the new cgroup at path. On kernels of el7 what
// it counts is never given back, until no cgroup can be made any more (runc#1921).
func kernelMemoryAccounting(path string, r *configs.Resources) error {
	if KernelMemoryOnRequest != nil && KernelMemoryOnRequest() && r.KernelMemory <= 0 && r.KernelMemoryTCP <= 0 {
		return nil
	}
	return enableKernelMemory(path)
}
