// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/patch"
)

// Extract carries the edits of the tree back to where they belong and returns
// the files of the repository that it wrote:
//
//   - an edited or new file of the overlay goes to its overlay folder;
//   - an edited upstream file goes into the last patch of the series that
//     changes it, or, where none does, into the patch named into (a file name).
//
// A patch whose effect stays the same stays as it is, to the byte. With
// several patches on one file an edit belongs to the last of them; to change
// an earlier one, edit its file and make again.
func (t *Tree) Extract(into string) ([]string, error) {
	unlock, err := t.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	m, err := t.loadManifest()
	if err != nil {
		return nil, err
	}
	if m.Incomplete {
		return nil, exit.Preconditionf("%s is half-written: run make first", t.rel(t.Dir()))
	}
	edits, err := t.edited(m)
	if err != nil {
		return nil, err
	}
	own, err := t.ownFiles()
	if err != nil {
		return nil, err
	}
	want, err := t.upstream()
	if err != nil {
		return nil, err
	}
	var written []string
	edited := map[string][]byte{} // upstream path -> content in the tree
	for _, e := range edits {
		if m.Generated[e.Path] {
			return written, exit.Preconditionf("%s is generated: an edit of it cannot be carried back; change what it is made from, and make discard", e.Path)
		}
		var content []byte
		if e.Kind != "removed" {
			if content, err = os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(e.Path))); err != nil {
				return written, err
			}
		}
		if _, upstream := want[e.Path]; upstream {
			if content == nil {
				return written, exit.Preconditionf("%s was removed: removing one of upstream's files is not carried back; write it into a patch by hand, or restore it with make discard", e.Path)
			}
			edited[e.Path] = content
			continue
		}
		file, err := t.overlayFile(e, own)
		if err != nil {
			return written, err
		}
		if content == nil {
			err = os.Remove(file)
		} else if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = os.WriteFile(file, content, 0o644)
		}
		if err != nil {
			return written, err
		}
		written = append(written, t.rel(file))
	}
	more, err := t.rewrite(want, edited, into)
	return append(written, more...), err
}

// overlayFile says where in the repository an overlay file of the tree lives.
func (t *Tree) overlayFile(e Edit, own map[string]source) (string, error) {
	for _, o := range t.overlayDirs() {
		rest := e.Path
		if o.To != "." && o.To != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(e.Path, o.To+"/"); !ok {
				continue
			}
		}
		return filepath.Join(t.Base.Root, filepath.FromSlash(o.From), filepath.FromSlash(rest)), nil
	}
	if _, ok := own[e.Path]; !ok && e.Kind == "added" {
		return "", exit.Preconditionf("%s is new, and no overlay folder of bases/%s/base.json covers it: move it below one", e.Path, t.Base.Name)
	}
	return "", exit.Preconditionf("%s (%s) is written by make: it cannot be carried back; make discard gives it up", e.Path, e.Kind)
}

// Normalise rewrites each patch of the tree's series that is not in normal
// form, with the same effect.
func (t *Tree) Normalise() ([]string, error) {
	want, err := t.upstream()
	if err != nil {
		return nil, err
	}
	return t.rewrite(want, nil, "")
}

// rewrite lays the series on want and writes those patches anew that take an
// edit or are not in normal form.
func (t *Tree) rewrite(want map[string]source, edited map[string][]byte, into string) ([]string, error) {
	patches, err := t.patches()
	if err != nil {
		return nil, err
	}
	home := map[string]string{} // edited path -> patch that takes it
	for path := range edited {
		home[path] = into
		for _, p := range patches {
			if slices.Contains(p.Touches(), path) {
				home[path] = p.Name
			}
		}
		if home[path] == "" {
			return nil, exit.Preconditionf("no patch of the series changes %s yet: say which one takes the edit (make patches-extract PATCH=NNNN-slug.patch; for a new patch write its message and trailers first, see patches/README.md)", path)
		}
	}
	if into != "" && !slices.ContainsFunc(patches, func(p *patch.Patch) bool { return p.Name == into }) {
		return nil, exit.Usagef("no patch %s in the series %s", into, strings.Join(t.Base.SeriesOf(t.Variant), ", "))
	}
	type out struct {
		file    string
		content []byte
	}
	var outs []out
	for _, p := range patches {
		paths := slices.Clone(p.Touches())
		takes := false
		for _, path := range sortedKeys(edited) {
			if home[path] != p.Name {
				continue
			}
			takes = true
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		changes := make([]patch.Change, len(paths))
		for i, path := range paths {
			changes[i].Path = path
			if s, ok := want[path]; ok {
				if changes[i].Old, err = s.read(); err != nil {
					return nil, err
				}
			}
		}
		if err := apply([]*patch.Patch{p}, want); err != nil {
			return nil, err
		}
		same := true
		for i, path := range paths {
			s, ok := want[path]
			if ok {
				if changes[i].New, err = s.read(); err != nil {
					return nil, err
				}
			}
			if content, ok := edited[path]; ok && home[path] == p.Name {
				same = same && bytes.Equal(content, changes[i].New)
				changes[i].New = content
				want[path] = fromBytes(content)
			}
		}
		if takes && same || !takes && len(p.Check()) == 0 {
			continue
		}
		raw, err := p.Render(changes)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(raw, p.Raw) {
			outs = append(outs, out{p.File, raw})
		}
	}
	var written []string
	for _, o := range outs {
		if err := writeFile(filepath.Join(t.Base.Root, o.file), o.content, 0o644); err != nil {
			return written, err
		}
		written = append(written, o.file)
	}
	return written, nil
}
