// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"bytes"
	"testing"
)

// What kubectl-holdfast carries says which release has what. TestCommitted compares the file.
func TestSmall(t *testing.T) {
	table, err := Load(root, "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	got := Small(table)
	for _, line := range []string{
		"\nreleases v1.7.0 v1.8.0 v1.8.15 v1.9.11 ours\n", "\nflag api-servers stringSlice 10000\n", "\nflag allow-privileged bool 11111\n", "\ngate AdmissionAcrossRestart 00001\n", "\ngate VolumeSubpath 00111\n",
		"\ndefault eviction-hard 11100 memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%\n",
	} {
		if !bytes.Contains(got, []byte(line)) {
			t.Errorf("it has no line %q", line)
		}
	}
}
