// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
)

// TestTempDir: two runs of tests at a time have two folders or, if they are the same tests, none
// takes the other's away.
func TestTempDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	env, end, err := TempDir("/checkout", "some tests", []string{"A=b"})
	if err != nil {
		t.Fatal(err)
	}
	dir := value(env, "TMPDIR")
	if _, err := os.Stat(dir); err != nil || value(env, "A") != "b" {
		t.Fatalf("%q: %v", env, err)
	}
	if _, _, err := TempDir("/checkout", "some tests", nil); exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "some tests: the same tests of /checkout run already") {
		t.Errorf("a folder in use: %v", err)
	}
	_, endOther, err := TempDir("/checkout", "other tests", nil)
	if err != nil {
		t.Fatal(err)
	}
	endOther()
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the folder is gone when other tests end: %v", err)
	}
	end()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	again, end, err := TempDir("/checkout", "some tests", nil)
	if err != nil || value(again, "TMPDIR") != dir {
		t.Fatalf("%q and not %q: %v", again, dir, err)
	}
	end()
}
