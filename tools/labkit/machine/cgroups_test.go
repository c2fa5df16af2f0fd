// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"
)

func TestParseHierarchies(t *testing.T) {
	const info = `68 67 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
69 68 0:29 /.. /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
71 68 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset
72 68 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
77 68 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,release_agent=/x,name=systemd
78 68 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`
	hs, err := parseHierarchies(strings.NewReader(info))
	if err != nil {
		t.Fatal(err)
	}
	want := []Hierarchy{{"cpu,cpuacct", "cpu,cpuacct"}, {"cpuset", "cpuset"}, {"memory", "memory"}, {"systemd", "none,name=systemd"}}
	if len(hs) != len(want) {
		t.Fatalf("got %v", hs)
	}
	for i := range hs {
		if hs[i] != want[i] {
			t.Errorf("%d: %v, want %v", i, hs[i], want[i])
		}
	}
	if _, err := parseHierarchies(strings.NewReader("78 68 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw")); err == nil || !strings.Contains(err.Error(), "cgroup v1") {
		t.Errorf("got %v", err)
	}
}
