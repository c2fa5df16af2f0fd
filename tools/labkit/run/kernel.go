// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/labkit"
)

// kernelPackage depends on Debian's newest kernel for virtual machines.
const kernelPackage = "linux-image-cloud-amd64"

// fetchKernel unpacks a kernel for labs with a virtual machine below labkit.KernelDir, unless
// one is there. It is not installed: the computer would boot it next.
func fetchKernel(ctx context.Context, root string, out io.Writer) error {
	dir := filepath.Join(root, labkit.KernelDir)
	if _, err := os.Stat(dir); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "kernel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintln(out, "unpack a kernel of Debian's for virtual machines")
	fetch := func() error { return download(ctx, tmp) }
	if err := fetch(); err != nil {
		// The package lists may be old or not there at all.
		if err := aptGet(ctx, "update"); err != nil {
			return err
		}
		if err := fetch(); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err == nil && len(debs) != 1 {
		err = fmt.Errorf("apt-get download: %d packages", len(debs))
	}
	if err != nil {
		return err
	}
	unpacked := filepath.Join(tmp, "unpacked")
	for _, words := range [][]string{{"dpkg-deb", "-x", debs[0], unpacked}, {"bash", "-euc", `depmod -b "$1" "$(ls "$1/lib/modules")"`, "-", unpacked}} {
		if text, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, text)
		}
	}
	return os.Rename(unpacked, dir)
}

// download puts the package of the kernel that kernelPackage depends on into dir.
func download(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", kernelPackage).CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-cache depends %s: %w: %s", kernelPackage, err, out)
	}
	for line := range strings.Lines(string(out)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if !ok || !strings.HasPrefix(name, "linux-image-") {
			continue
		}
		// As root: apt's own user may not write here.
		cmd := exec.CommandContext(ctx, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get download %s: %w: %s", name, err, out)
		}
		return nil
	}
	return fmt.Errorf("%s depends on no kernel: %s", kernelPackage, out)
}
