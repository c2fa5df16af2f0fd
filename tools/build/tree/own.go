// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/patch"
)

// content is upstream's files, ours and what the patches make of them.
func (t *Tree) content(own map[string]source, patches []*patch.Patch) (map[string]source, error) {
	want, err := t.upstream()
	if err != nil {
		return nil, err
	}
	for path, s := range own {
		if _, ok := want[path]; ok {
			return nil, exit.Preconditionf("overlay file %s exists upstream: the overlay only adds files, change upstream's by a patch", path)
		}
		want[path] = s
	}
	return want, apply(patches, want)
}

// overlay lists the files of ours that lie in the overlay folders, by their
// paths in the tree, with their places in the repository. Whose they are, and
// whether this tree has them, stands in the fixes.
func (t *Tree) overlay() (map[string]string, error) {
	out := map[string]string{}
	for _, dir := range t.Base.OverlayDirs() {
		tops := base.SharedOverlay
		if dir != "." {
			tops = []string{"."}
		}
		for _, top := range tops {
			from := filepath.Join(t.Base.Root, filepath.FromSlash(dir), top)
			err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) && path == from {
					return nil // a base without files of ours in this folder
				}
				if err != nil || d.IsDir() {
					return err
				}
				rel, err := filepath.Rel(filepath.Join(t.Base.Root, filepath.FromSlash(dir)), path)
				if err != nil {
					return err
				}
				rel = filepath.ToSlash(rel)
				if _, ok := out[rel]; !ok && rel != "go.mod" {
					out[rel] = path
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// ownFiles reads the files of ours that the variant's fixes have.
func (t *Tree) ownFiles() (map[string]source, error) {
	all, err := t.overlay()
	if err != nil {
		return nil, err
	}
	have, err := t.Base.FixesOf(t.Variant)
	if err != nil {
		return nil, err
	}
	out := map[string]source{}
	for _, rel := range sortedKeys(all) {
		s := t.Base.Fixes.OfFile(t.Base.Name, rel)
		if s == nil {
			if len(t.Base.Fixes.Claims(rel)) > 0 {
				continue // another base's
			}
			return nil, exit.Preconditionf("%s is in no fix: add it to \"overlay\" in the fix.json of one, or remove it", t.rel(all[rel]))
		}
		if !slices.Contains(have, s) {
			continue
		}
		info, err := os.Lstat(all[rel])
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, exit.Preconditionf("overlay file %s is not a regular file", t.rel(all[rel]))
		}
		content, err := os.ReadFile(all[rel])
		if err != nil {
			return nil, err
		}
		f := fromBytes(content)
		if info.Mode()&0o100 != 0 {
			f.mode = 0o755
		}
		out[rel] = f
	}
	generated, err := t.features(have)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, generated)
	return out, nil
}

// features are the files with the gates of the fixes. A base in GOPATH mode has none: its upstream
// has no package for gates.
func (t *Tree) features(have []*fixes.Fix) (map[string]source, error) {
	out := map[string]source{}
	if t.Base.Mode != base.ModeModule {
		return out, nil
	}
	for _, s := range have {
		content, err := s.Features(t.Base.Name)
		if err != nil {
			return nil, exit.Preconditionf("%v", err)
		}
		if content != nil {
			out[s.FeaturesFile()] = fromBytes(content)
		}
	}
	return out, nil
}

// patches loads the variant's patches. Where some of the base's are left out,
// those behind them have their line numbers moved (see patch.Without).
func (t *Tree) patches() ([]*patch.Patch, error) {
	have, err := t.Base.FixesOf(t.Variant)
	if err != nil {
		return nil, err
	}
	all, err := patch.Load(t.Base.Root, t.Base.Fixes.Patches(t.Base.Name))
	if err != nil {
		return nil, err
	}
	return patch.Without(all, func(p *patch.Patch) bool {
		return !slices.Contains(have, t.Base.Fixes.OfPatch(p.File))
	})
}

// apply lays the patches on want, in order.
func apply(patches []*patch.Patch, want map[string]source) error {
	for _, p := range patches {
		err := p.Apply(
			func(path string) ([]byte, error) {
				s, ok := want[path]
				if !ok {
					return nil, nil
				}
				return s.read()
			},
			func(path string, content []byte) error {
				if content == nil {
					delete(want, path)
					return nil
				}
				want[path] = fromBytes(content)
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// Own is the content of the files of the tree that are not upstream's: those of
// the overlay, and those that the variant's patches change, as they leave them;
// and of the files also, as far as the tree has them, or else of a file beside them
// (withSiblings). Nothing is written.
func (t *Tree) Own(also ...string) (map[string][]byte, error) {
	if err := t.Base.HasVariant(t.Variant); err != nil {
		return nil, err
	}
	own, err := t.ownFiles()
	if err != nil {
		return nil, err
	}
	patches, err := t.patches()
	if err != nil {
		return nil, err
	}
	want, err := t.content(own, patches)
	if err != nil {
		return nil, err
	}
	paths := append(sortedKeys(own), also...)
	for _, p := range patches {
		paths = append(paths, p.Touches()...)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		if s, ok := want[path]; ok {
			if out[path], err = s.read(); err != nil {
				return nil, err
			}
		}
	}
	return out, withSiblings(out, also, want)
}

// withSiblings adds to out a Go file of upstream's for each folder of also of
// which nothing is there: a package to which we only add files is still one
// without them.
func withSiblings(out map[string][]byte, also []string, want map[string]source) error {
	empty := map[string]bool{}
	for _, file := range also {
		empty[path.Dir(file)] = true
	}
	for file := range out {
		delete(empty, path.Dir(file))
	}
	if len(empty) == 0 {
		return nil
	}
	for _, file := range sortedKeys(want) {
		if dir := path.Dir(file); empty[dir] && path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") {
			text, err := want[file].read()
			if err != nil {
				return err
			}
			out[file] = text
			delete(empty, dir)
		}
	}
	return nil
}

// OverlayContent is the content of the overlay's files by their paths in the tree.
func (t *Tree) OverlayContent() (map[string][]byte, error) {
	own, err := t.ownFiles()
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for path, s := range own {
		if out[path], err = s.read(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// OverlayFiles lists the overlay's files by their paths in the tree, sorted.
func (t *Tree) OverlayFiles() ([]string, error) {
	own, err := t.ownFiles()
	if err != nil {
		return nil, err
	}
	return sortedKeys(own), nil
}
