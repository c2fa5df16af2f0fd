// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/patch"
	"holdfast/tools/build/progress"
	"holdfast/tools/build/tree"
)

// ProductFixes lists the fixes by which ours differs from stock.
func ProductFixes(b *base.Base) ([]string, error) {
	ours, err := b.FixesOf(base.Ours)
	if err != nil {
		return nil, err
	}
	stock, err := b.FixesOf(base.Stock)
	if err != nil {
		return nil, err
	}
	return fixes.Names(slices.DeleteFunc(ours, func(s *fixes.Fix) bool { return slices.Contains(stock, s) })), nil
}

// TouchedDirs lists the folders of the tree in which ours has Go files that
// stock does not have, or has them otherwise; sorted.
func TouchedDirs(b *base.Base) ([]string, error) {
	dirs := map[string]bool{}
	patches, err := patch.Load(b.Root, b.Fixes.Patches(b.Name))
	if err != nil {
		return nil, err
	}
	for _, p := range patches {
		if b.Fixes.OfPatch(p.File).Kind == fixes.Toolchain {
			continue
		}
		for _, f := range p.Touches() {
			if strings.HasSuffix(f, ".go") {
				dirs[path.Dir(f)] = true
			}
		}
	}
	own, err := (&tree.Tree{Base: b, Variant: base.Ours}).OverlayFiles()
	if err != nil {
		return nil, err
	}
	for _, f := range own {
		if strings.HasSuffix(f, ".go") && !strings.Contains(f, "/testdata/") {
			dirs[path.Dir(f)] = true
		}
	}
	var out []string
	for d := range dirs {
		out = append(out, d)
	}
	slices.Sort(out)
	return out, nil
}

// ImportPath is that of the package in a folder of the tree.
func ImportPath(b *base.Base, dir string) string {
	for _, src := range []string{"staging/src/", "Godeps/_workspace/src/"} {
		if rest, ok := strings.CutPrefix(dir, src); ok {
			return rest
		}
	}
	for _, f := range b.Forks {
		if rest, ok := strings.CutPrefix(dir+"/", f.Dir+"/"); ok {
			return path.Join(f.Module, rest)
		}
	}
	return path.Join(b.Module, dir)
}

// AppliesWithout says whether the patches that are left apply, in seconds, when ours does without a
// fix. CheckWithout compiles.
func AppliesWithout(b *base.Base, fix string) error {
	_, err := (&tree.Tree{Base: b, Variant: base.Ours.Without(fix)}).Own()
	return err
}

// CheckWithout writes the tree of ours without a fix and compiles there, with
// their tests, the packages that ours touches: what is left of a fix when
// another one is taken out still fits. It returns how many packages there are.
func CheckWithout(ctx context.Context, b *base.Base, fix string) (int, error) {
	v := base.Ours.Without(fix)
	if err := b.HasVariant(v); err != nil {
		return 0, err
	}
	modfile, err := Source(ctx, b, v)
	if err != nil {
		return 0, err
	}
	dirs, err := TouchedDirs(b)
	if err != nil {
		return 0, err
	}
	var packages []string
	for _, d := range dirs {
		files, err := filepath.Glob(filepath.Join(b.SrcDir(v), filepath.FromSlash(d), "*.go"))
		if err != nil {
			return 0, err
		}
		if len(files) > 0 {
			packages = append(packages, ImportPath(b, d))
		}
	}
	s := progress.Start("compile %d packages of %s %s and their tests", len(packages), b.Name, v)
	// -export: the go command compiles, and does not link.
	args := []string{"list", "-test", "-export", "-trimpath", "-buildvcs=false", "-f", "{{.ImportPath}}"}
	args = append(append(args, ModFlags(b, modfile)...), LangFlags(b)...)
	cmd := Command(ctx, "go", append(args, packages...)...)
	cmd.Dir, cmd.Env = b.Root, TestEnv(b, v)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fail()
		return 0, exit.Preconditionf("%s %s does not compile: %v\n%s\nIf the code of a remaining fix calls code of %s, say so with \"needs\" in its %s", b.Name, v, err, out, fix, fixes.File)
	}
	s.Done("")
	return len(packages), nil
}

// BuildWithout builds the product without a fix; an optional binary, if the fix
// is part of it.
func BuildWithout(ctx context.Context, b *base.Base, fix string) error {
	names := b.BinaryNames(true)
	for _, n := range b.OptionalNames() {
		if s := b.Fixes.Find(fix); s != nil && slices.Contains(s.Components, n) {
			names = append(names, n)
		}
	}
	files, err := Build(ctx, b, Options{Variant: base.Ours.Without(fix), Binaries: names})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("base %s has no binaries of the product", b.Name)
	}
	return err
}
