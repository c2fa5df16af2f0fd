// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"strings"
	"testing"
)

func TestSwapped(t *testing.T) {
	before := Snapshot{"a/x/c": {ID: "1"}, "a/x/POD": {ID: "2", Sandbox: true}, "a/y/c": {ID: "3"}, "a/z/c": {ID: "4"}}
	after := Snapshot{"a/x/c": {ID: "1"}, "a/x/POD": {ID: "9", Sandbox: true}, "a/y/c": {ID: "5"}, "a/new/c": {ID: "6"}}
	told := func(out string, status int) string {
		w := &Swapped{Command: "node swap", Status: status}
		w.count(out)
		return w.Wrong(before, after)
	}
	const good = "settling\nkept 1, recreated 1 (a/y c), static 1 (a/s s), new 1, gone 1: 1 new\n"
	if got := told(good, 0); got != "" {
		t.Error(got)
	}
	for out, status := range map[string]int{good: 3, "": 0, "kept 2, recreated 0, new 1, gone 1: nothing found\n": 0, "kept 1, recreated 1, new 1, gone 0: nothing found\n": 0} {
		if got := told(out, status); !strings.Contains(got, "they are 1, 1 and 1") {
			t.Errorf("%d %q: %q", status, out, got)
		}
	}
}
