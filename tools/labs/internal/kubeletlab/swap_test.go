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
	told := func(out string) string {
		w := &Swapped{Command: "node swap"}
		if err := w.count(out); err != nil {
			return err.Error()
		}
		return w.Wrong(before, after)
	}
	if got := told("settling\nkept 1, recreated 1 (a/y c), static 1 (a/s s), new 1,\ngone 1: 1 new\n"); got != "" {
		t.Error(got)
	}
	for out, want := range map[string]string{
		"settling\n": "did not count",
		"kept 2, recreated 0, new 1, gone 1: nothing found\n": "they are 1, 1 and 1",
		"kept 1, recreated 1, new 1, gone 0: nothing found\n": "they are 1, 1 and 1",
	} {
		if got := told(out); !strings.Contains(got, want) {
			t.Errorf("%q: %q", out, got)
		}
	}
}
