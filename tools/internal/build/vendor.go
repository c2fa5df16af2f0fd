// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/progress"
	"holdfast/tools/internal/tree"
)

// vendorKey, inside vendor/, names the tree that vendor/ was made from.
const vendorKey = "holdfast.key"

// Vendor writes vendor/ for the root module (the patched tree's packages and
// all third-party modules), for tools/ and for cmd/, so that `make OFFLINE=1`
// needs neither network nor module cache.
func Vendor(b *base.Base) error {
	if _, err := Source(b, base.Ours); err != nil {
		return err
	}
	for _, dir := range []string{".", "tools", "cmd"} {
		if _, err := os.Stat(filepath.Join(b.Root, dir, "go.mod")); os.IsNotExist(err) && dir == "cmd" {
			continue // a checkout of tests has no programs for operators
		}
		s := progress.Start("write %s", filepath.Join(dir, "vendor"))
		// -e: x/oauth2 imports App Engine's packages under a build tag that no
		// build of ours sets; Godeps.json does not have them either. What is
		// needed is checked below.
		cmd := exec.Command("go", "mod", "vendor", "-e")
		cmd.Dir, cmd.Env = filepath.Join(b.Root, dir), GoEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fail()
			return exit.Preconditionf("go mod vendor in %s: %v\n%s", dir, err, out)
		}
		s.Done("")
	}
	for _, n := range b.BinaryNames(true) {
		cmd := exec.Command("go", "list", "-mod=vendor", "-deps", b.ImportPath(b.Binaries[n]))
		cmd.Dir, cmd.Env = b.Root, Env(b, base.Ours, b.Binaries[n])
		if out, err := cmd.CombinedOutput(); err != nil {
			return exit.Preconditionf("vendor/ lacks something that %s needs: %v\n%s", n, err, out)
		}
	}
	key, err := (&tree.Tree{Base: b, Variant: base.Ours}).Key()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Root, "vendor", vendorKey), []byte(key+"\n"), 0o644)
}

// checkVendor refuses a vendor/ that was made from other sources than those of
// this checkout: the go command only compares its module list.
func checkVendor(b *base.Base, variant string) error {
	if variant != base.Ours || b.Mode != base.ModeModule {
		return exit.Usagef("OFFLINE builds only our variant of a base in module mode from vendor/, not %s %s", b.Name, variant)
	}
	raw, err := os.ReadFile(filepath.Join(b.Root, "vendor", vendorKey))
	if err != nil {
		return exit.Preconditionf("OFFLINE: %v: run make vendor first, where the network is", err)
	}
	key, err := (&tree.Tree{Base: b, Variant: variant}).Key()
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(raw)); got != key {
		return exit.Preconditionf("OFFLINE: vendor/ was made from other patches, overlay files or pins than this checkout has (%s): run make vendor again, where the network is", fmt.Sprintf("%.12s is not %.12s", got, key))
	}
	return nil
}
