// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/digest"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/patch"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/tree"
)

// SourceKey is a digest, in hex, of what a binary of a base is built from in a
// variant: the Go release, the pins, base.json, and the patches and overlay files
// of the slugs that concern the binary. Slugs of other binaries do not count, nor do
// tests, the text above a patch, or the commit and the date that a binary carries.
func SourceKey(b *base.Base, v base.Variant, binary string) (string, error) {
	if _, ok := b.Binaries[binary]; !ok {
		return "", exit.Usagef("base %s has no binary %q: it has %s", b.Name, binary, strings.Join(b.BinaryNames(false), ", "))
	}
	if err := b.HasVariant(v); err != nil {
		return "", err
	}
	v = b.TreeOf(v, binary)
	d := digest.New()
	d.Line("%s %s %s", runtime.Version(), b.Name, binary)
	for _, name := range []string{"go.mod", "go.sum", filepath.Join("bases", b.Name, "base.json")} {
		raw, err := os.ReadFile(filepath.Join(b.Root, name))
		if err != nil {
			return "", err
		}
		d.File(name, raw)
	}
	bin := b.Binaries[binary]
	dirs := []string{}
	if bin.CgoInclude != "" {
		dirs = append(dirs, bin.CgoInclude)
	}
	// A program of our own, which a lab runs.
	if own, ok := strings.CutPrefix(bin.Package, "holdfast/"); ok {
		dirs = append(dirs, own)
	}
	for _, dir := range dirs {
		if err := addDir(d, b.Root, dir); err != nil {
			return "", err
		}
	}
	have, err := b.SlugsOf(v)
	if err != nil {
		return "", err
	}
	have = slices.DeleteFunc(have, func(s *slugs.Slug) bool { return !concerns(b, s, binary) })
	files, err := (&tree.Tree{Base: b, Variant: v}).OverlayContent()
	if err != nil {
		return "", err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		test := strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testdata/")
		if !test && slices.Contains(have, b.Slugs.OfFile(b.Name, file)) {
			d.File(file, files[file])
		}
	}
	for _, dir := range b.SeriesOf(v) {
		patches, err := patch.LoadSeries(b.Root, dir)
		if err != nil {
			return "", err
		}
		for _, p := range patches {
			if slices.Contains(have, b.Slugs.OfPatch(b.Name, p.Name)) {
				_, diff, _ := strings.Cut(string(p.Raw), "\ndiff --git ")
				d.File(p.Name, []byte(diff))
			}
		}
	}
	return d.String(), nil
}

// addDir adds the files of a folder below root, without tests and folders in it.
func addDir(d *digest.Digest, root, dir string) error {
	files, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.IsDir() || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(root, dir, f.Name()))
		if err != nil {
			return err
		}
		d.File(filepath.Join(dir, f.Name()), raw)
	}
	return nil
}

// concerns says whether a slug can change a binary: it names it, or a library, or
// nothing.
func concerns(b *base.Base, s *slugs.Slug, binary string) bool {
	return len(s.Components) == 0 || slices.ContainsFunc(s.Components, func(c string) bool {
		_, isBinary := b.Binaries[c]
		return c == binary || !isBinary
	})
}
