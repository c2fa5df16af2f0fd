// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux
// +build linux

package fs

import (
	"io/ioutil"
	"os"
	"testing"

	"github.com/opencontainers/runc/libcontainer/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
)

// TestKernelMemoryOnRequest: a new cgroup has its kernel memory accounted if it gets a limit of it,
// and else only as upstream does.
func TestKernelMemoryOnRequest(t *testing.T) {
	if _, err := cgroups.FindCgroupMountpoint("memory"); err != nil {
		t.Skipf("Apply does nothing without a mounted memory cgroup: %v", err)
	}
	defer func() { KernelMemoryOnRequest, enableKernelMemory = nil, EnableKernelMemoryAccounting }()
	yes, no := func() bool { return true }, func() bool { return false }
	for name, c := range map[string]struct {
		onRequest func() bool
		r         configs.Resources
		want      int
	}{
		"upstream":                {nil, configs.Resources{Memory: 1 << 20}, 1},
		"off":                     {no, configs.Resources{Memory: 1 << 20}, 1},
		"memory":                  {yes, configs.Resources{Memory: 1 << 20}, 0},
		"memory and swap":         {yes, configs.Resources{Memory: 1 << 20, MemorySwap: 1 << 21}, 0},
		"unlimited memory":        {yes, configs.Resources{Memory: -1}, 0},
		"kernel memory":           {yes, configs.Resources{Memory: 1 << 20, KernelMemory: 1 << 19}, 1},
		"kernel memory of TCP":    {yes, configs.Resources{KernelMemoryTCP: 1 << 19}, 1},
		"unlimited kernel memory": {yes, configs.Resources{Memory: 1 << 20, KernelMemory: -1}, 0},
		"nothing":                 {yes, configs.Resources{}, 0},
	} {
		root, err := ioutil.TempDir("", "kmem-off")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		KernelMemoryOnRequest = c.onRequest
		calls := 0
		enableKernelMemory = func(string) error { calls++; return nil }
		d := &cgroupData{root: root, innerPath: "/pod", config: &configs.Cgroup{Resources: &c.r}, pid: -1}
		for i := 0; i < 2; i++ { // the second finds the cgroup
			if err := (&MemoryGroup{}).Apply(d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if calls != c.want {
			t.Errorf("%s: turned on %d times, want %d", name, calls, c.want)
		}
	}
}
