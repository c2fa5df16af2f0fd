// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	mod "golang.org/x/mod/modfile"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/progress"
	"holdfast/tools/build/tree"
)

// vendorKey, inside a vendor folder, names the tree that it was made from.
const vendorKey = "holdfast.key"

// vendorDir is where the sources of an offline build of b are. The root module
// is built from its own vendor/. The go command knows no second one, so any other
// base has a folder of its own, bases/<base>/vendor: a GOPATH, or a module with the
// base's versions and a vendor/ (vendorModule).
func vendorDir(b *base.Base) string {
	if b.Mode == base.ModeGOPATH || b.Pins != "" {
		return filepath.Join(b.Root, "bases", b.Name, "vendor")
	}
	return filepath.Join(b.Root, "vendor")
}

// offlineDir is the folder of the module that an offline build of b is built in.
func offlineDir(b *base.Base) string {
	if b.Mode != base.ModeGOPATH && b.Pins != "" {
		return vendorDir(b)
	}
	return b.Root
}

// vendorModule makes vendorDir the module that modfile describes. It needs the programs as tools, so
// that go mod vendor takes what they import; and the replaced folders, which modfile names from the root.
func vendorModule(b *base.Base, modfile string) error {
	dir := vendorDir(b)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	raw, err := os.ReadFile(modfile)
	if err != nil {
		return err
	}
	f, err := mod.Parse(modfile, raw, nil)
	if err != nil {
		return err
	}
	for _, n := range b.BinaryNames(true) {
		if err := f.AddTool(b.ImportPath(b.Binaries[n])); err != nil {
			return err
		}
	}
	f.Cleanup()
	text, err := f.Format()
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(strings.TrimSuffix(modfile, ".mod") + ".sum")
	if err != nil {
		return err
	}
	output, err := filepath.Rel(dir, b.Output())
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644),
		os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644), os.Symlink(output, filepath.Join(dir, filepath.Base(b.Output()))))
}

// Vendor writes what `make OFFLINE=1` builds from: for the root module (the
// patched tree's packages and all third-party modules) or the base's GOPATH,
// and for tools/, cmd/, webhook/ and release/. That build then needs neither network nor module cache.
func Vendor(ctx context.Context, b *base.Base) error {
	if err := vendorable(b, base.Ours); err != nil {
		return err
	}
	modfile, err := Source(ctx, b, base.Ours)
	if err != nil {
		return err
	}
	dirs := []string{relative(b, offlineDir(b)), "tools"}
	if modfile != "" {
		if err := vendorModule(b, modfile); err != nil {
			return err
		}
	}
	for _, dir := range []string{"cmd", "webhook", "release"} {
		if _, err := os.Stat(filepath.Join(b.Root, dir, "go.mod")); err == nil { // a checkout of tests has no programs for operators
			dirs = append(dirs, dir)
		}
	}
	if b.Mode == base.ModeGOPATH {
		dirs = dirs[1:]
		if err := vendorGOPATH(ctx, b); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		s := progress.Start("write %s", filepath.Join(dir, "vendor"))
		// -e: x/oauth2 imports App Engine's packages under a build tag that no
		// build of ours sets; Godeps.json does not have them either. What is
		// needed is checked below.
		cmd := Command(ctx, "go", "mod", "vendor", "-e")
		cmd.Dir, cmd.Env = filepath.Join(b.Root, dir), GoEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fail()
			return exit.Preconditionf("go mod vendor in %s: %v\n%s", dir, err, out)
		}
		s.Done("")
	}
	for _, n := range b.BinaryNames(true) {
		args := append([]string{"list"}, vendorFlags(b)...)
		cmd := Command(ctx, "go", append(args, "-deps", b.ImportPath(b.Binaries[n]))...)
		cmd.Dir, cmd.Env = offlineDir(b), env(b, vendoredSrc(b), b.Binaries[n])
		if out, err := cmd.CombinedOutput(); err != nil {
			return exit.Preconditionf("%s lacks something that %s needs: %v\n%s", relative(b, vendorDir(b)), n, err, out)
		}
	}
	key, err := (&tree.Tree{Base: b, Variant: base.Ours}).Key()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(vendorDir(b), vendorKey), []byte(key+"\n"), 0o644)
}

// vendorFlags are the go command's flags for an offline build.
func vendorFlags(b *base.Base) []string {
	if b.Mode == base.ModeGOPATH {
		return nil
	}
	return []string{"-mod=vendor"}
}

// vendoredSrc is the base's tree as Vendor has copied it.
func vendoredSrc(b *base.Base) string {
	if b.Mode == base.ModeGOPATH {
		return filepath.Join(vendorDir(b), "src", filepath.FromSlash(b.Module))
	}
	return b.SrcDir(base.Ours)
}

// vendorGOPATH copies the folders of all packages that the product links from
// the tree to the base's vendor folder.
func vendorGOPATH(ctx context.Context, b *base.Base) error {
	to := vendorDir(b)
	s := progress.Start("write %s", relative(b, to))
	if err := os.RemoveAll(to); err != nil {
		s.Fail()
		return err
	}
	from := b.SrcDir(base.Ours)
	folders := map[string]bool{}
	for _, n := range b.BinaryNames(true) {
		cmd := Command(ctx, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", b.ImportPath(b.Binaries[n]))
		cmd.Dir, cmd.Env = b.Root, env(b, from, b.Binaries[n])
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			s.Fail()
			return exit.Preconditionf("go list of %s: %v\n%s", n, err, stderr.Bytes())
		}
		for _, d := range strings.Fields(string(out)) {
			folders[d] = true
		}
	}
	for d := range folders {
		if err := copyFiles(from, d, vendoredSrc(b)); err != nil {
			s.Fail()
			return err
		}
	}
	s.Done(fmt.Sprintf("%d packages", len(folders)))
	return nil
}

// copyFiles copies the files of the folder dir, not those of its folders, to
// the same place below to that it has below from.
func copyFiles(from, dir, to string) error {
	rel, err := filepath.Rel(from, dir)
	if err != nil || strings.HasPrefix(rel, "..") {
		return fmt.Errorf("the package folder %s lies outside of the tree %s", dir, from)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, rel), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, rel, e.Name()), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func relative(b *base.Base, path string) string {
	if r, err := filepath.Rel(b.Root, path); err == nil {
		return r
	}
	return path
}

// vendorable refuses what is not built from a vendor folder.
func vendorable(b *base.Base, variant base.Variant) error {
	if variant != base.Ours {
		return exit.Usagef("OFFLINE builds only variant %q from %s, not %q", base.Ours, relative(b, vendorDir(b)), variant)
	}
	return b.HasVariant(variant)
}

// checkVendor refuses a vendor folder that was made from other sources than
// those of this checkout: the go command only compares its module list.
func checkVendor(b *base.Base, variant base.Variant) error {
	if err := vendorable(b, variant); err != nil {
		return err
	}
	dir := relative(b, vendorDir(b))
	again := "make vendor"
	if !b.Default {
		again = "make BASE=" + b.Name + " vendor"
	}
	raw, err := os.ReadFile(filepath.Join(b.Root, dir, vendorKey))
	if err != nil {
		return exit.Preconditionf("OFFLINE: %v: run %s first, on a machine with a network", err, again)
	}
	key, err := (&tree.Tree{Base: b, Variant: variant}).Key()
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(raw)); got != key {
		return exit.Preconditionf("OFFLINE: %s/ was made from other patches, overlay files or pins than this checkout has (%.12s is not %.12s): run %s again, on a machine with a network", dir, got, key, again)
	}
	return nil
}
