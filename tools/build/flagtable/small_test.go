// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the copy of the table in cmd/ from the committed table")

// TestSmall fails where the copy in cmd/ is not that of the committed table. make flags writes both.
func TestSmall(t *testing.T) {
	const root = "../../.."
	table, err := Load(root, "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	want := Small(table)
	if *update {
		if err := os.WriteFile(filepath.Join(root, SmallFile), want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(root, SmallFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not of %s: make flags writes both", SmallFile, File("kubelet"))
	}
	for _, line := range []string{"\nflag api-servers stringSlice 1000\n", "\nflag allow-privileged bool 1111\n", "\ngate AdmissionAcrossRestart 0001\n"} {
		if !bytes.Contains(got, []byte(line)) {
			t.Errorf("it has no line %q", line)
		}
	}
}
