// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLab runs the lab package-upgrade with packages of what make has built. See
// tools/labs/checks/package-upgrade/README.md.
func TestLab(t *testing.T) {
	long(t)
	root, err := filepath.Abs("..")
	must(t, err)
	dir := filepath.Join(root, "_output/packages")
	must(t, os.RemoveAll(dir))
	base, err := readBase(root, "")
	must(t, err)
	program := filepath.Join(root, "_output/bin", base.Name, "ours", kubelet)
	next := filepath.Join(t.TempDir(), kubelet)
	must(t, exec.Command("cp", program, next).Run())
	must(t, appendTo(filepath.Dir(next), kubelet)) // another file, that runs as well
	programs := []string{program, next}
	signed(t, dir, []string{debFormat}, func(string) string {
		p := programs[0]
		programs = programs[1:]
		return p
	})
	form(t, filepath.Join(dir, "upstream"))
	must(t, exec.Command("chmod", "-R", "a+rX", dir).Run())
	cmd := exec.Command(filepath.Join(root, "_output/tools/lab"), "package-upgrade")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	must(t, cmd.Run())
}
