// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/patch"
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
//
// Nothing is written unless all edits can be carried back: a file that was
// changed both in the tree and in the repository since is left to a person.
func (t *Tree) Extract(into string) ([]string, error) {
	if err := t.whole(); err != nil {
		return nil, err
	}
	unlock, err := t.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	m, edits, err := t.state()
	if err != nil {
		return nil, err
	}
	if m.Incomplete {
		return nil, exit.Preconditionf("%s is half-written: run make first", t.rel(t.Dir()))
	}
	if len(m.Files) == 0 {
		return nil, exit.Preconditionf("there is no tree %s: run make source first", t.rel(t.Dir()))
	}
	own, err := t.ownFiles()
	if err != nil {
		return nil, err
	}
	want, err := t.upstream()
	if err != nil {
		return nil, err
	}
	var outs []output
	edited := map[string][]byte{} // upstream path -> content in the tree
	for _, e := range edits {
		if m.Generated[e.Path] {
			return nil, exit.Preconditionf("%s is generated: an edit of it cannot be carried back; change its source, and run make discard-edits", e.Path)
		}
		var content []byte
		if e.Kind != "removed" {
			if content, err = os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(e.Path))); err != nil {
				return nil, err
			}
		}
		if _, upstream := want[e.Path]; upstream {
			if content == nil {
				return nil, exit.Preconditionf("%s was removed: removing one of upstream's files is not carried back; write it into a patch by hand, or restore it with make discard-edits", e.Path)
			}
			edited[e.Path] = content
			continue
		}
		if s := t.Base.Fixes.OfFeatures(e.Path); s != nil {
			return nil, exit.Preconditionf("%s is generated from %s: change that, and run make discard-edits", e.Path, s.File())
		}
		file, err := t.overlayFile(e, own)
		if err != nil {
			return nil, err
		}
		if now := own[e.Path].sum; now != m.Files[e.Path].Sum && (content == nil || now != sha(content)) {
			return nil, bothChanged(e.Path, t.rel(file))
		}
		outs = append(outs, output{t.rel(file), content})
	}
	patches, err := t.rewrite(want, edited, m, into)
	if err != nil {
		return nil, err
	}
	return t.writeAll(append(outs, patches...))
}

// bothChanged is the error for a file that has two new states.
func bothChanged(path, file string) error {
	return exit.Preconditionf("%s was edited in the tree, and %s was changed since the tree was written: restore one of them (git stash, or your editor), or carry the edit over by hand; nothing was changed", path, file)
}

// output is one file of the repository to be written; nil content removes it.
type output struct {
	file    string // relative to the root
	content []byte
}

// writeAll writes outs and returns their names.
func (t *Tree) writeAll(outs []output) ([]string, error) {
	var written []string
	for _, o := range outs {
		file := filepath.Join(t.Base.Root, o.file)
		var err error
		if o.content == nil {
			err = os.Remove(file)
		} else if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = writeFile(file, o.content, 0o644)
		}
		if err != nil {
			return written, err
		}
		written = append(written, o.file)
	}
	return written, nil
}

// overlayFile says where in the repository an overlay file of the tree lives, or,
// when it is new, belongs: among the base's own files where it has a folder of
// them, else among the shared ones.
func (t *Tree) overlayFile(e Edit, own map[string]source) (string, error) {
	if name := path.Base(e.Path); name == "go.mod" || name == "go.sum" {
		return "", exit.Preconditionf("%s (%s) is written by make: it cannot be carried back; make discard-edits discards it", e.Path, e.Kind)
	}
	if _, ok := own[e.Path]; ok {
		files, err := t.overlay()
		return files[e.Path], err
	}
	s := t.Base.Fixes.OfFile(t.Base.Name, e.Path)
	if s == nil {
		return "", exit.Preconditionf("%s (%s) is not upstream's, and no fix of base %s has it: add it to \"overlay\" in the fix.json of one", e.Path, e.Kind, t.Base.Name)
	}
	for _, dir := range t.Base.OverlayDirs() {
		folder := filepath.Join(t.Base.Root, filepath.FromSlash(dir))
		top, _, _ := strings.Cut(e.Path, "/")
		if dir == "." && !slices.Contains(base.SharedOverlay, top) {
			continue
		}
		if _, err := os.Stat(folder); err == nil {
			return filepath.Join(folder, filepath.FromSlash(e.Path)), nil
		}
	}
	return "", exit.Preconditionf("%s (%s) lies outside of %s, and base %s has no folder bases/%s/overlay for files of its own", e.Path, e.Kind, strings.Join(base.SharedOverlay, ", "), t.Base.Name, t.Base.Name)
}

// Normalise rewrites each patch of the tree's series that is not in normal
// form, with the same effect.
func (t *Tree) Normalise() ([]string, error) {
	if err := t.whole(); err != nil {
		return nil, err
	}
	want, err := t.upstream()
	if err != nil {
		return nil, err
	}
	outs, err := t.rewrite(want, nil, nil, "")
	if err != nil {
		return nil, err
	}
	return t.writeAll(outs)
}

// whole refuses a variant that leaves fixes out: the lines of its patches are not
// those of the patch files.
func (t *Tree) whole() error {
	if err := t.Base.HasVariant(t.Variant); err != nil {
		return err
	}
	gone, err := t.Base.MinusOf(t.Variant)
	if err != nil || len(gone) == 0 {
		return err
	}
	return exit.Usagef("variant %q leaves out %s: patches are extracted and normalised in a variant that has all patches of its base", t.Variant, strings.Join(gone, ", "))
}

// rewrite lays the series on want and returns those patches anew that take an
// edit or are not in normal form. m is what the edited tree was made of.
func (t *Tree) rewrite(want map[string]source, edited map[string][]byte, m *manifest, into string) ([]output, error) {
	patches, err := t.patches()
	if err != nil {
		return nil, err
	}
	home := map[string]string{} // edited path -> patch that takes it
	for path := range edited {
		home[path] = into
		for _, p := range patches {
			if slices.Contains(p.Touches(), path) {
				home[path] = p.File
			}
		}
		if home[path] == "" {
			return nil, exit.Preconditionf("no patch of the base changes %s yet: name the one that takes the edit (make patches-extract PATCH=patches/FIX/BASE/NNNN.patch; for a new patch write its message and trailers first, see patches/README.md)", path)
		}
	}
	if into != "" && !slices.ContainsFunc(patches, func(p *patch.Patch) bool { return p.File == into }) {
		return nil, exit.Usagef("base %s has no patch %s: name a file patches/FIX/%s/NNNN.patch", t.Base.Name, into, t.Base.Name)
	}
	var outs []output
	for _, p := range patches {
		paths := slices.Clone(p.Touches())
		takes := false
		for _, path := range sortedKeys(edited) {
			if home[path] != p.File {
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
			if content, ok := edited[path]; ok && home[path] == p.File {
				if now := sha(changes[i].New); now != m.Files[path].Sum && now != sha(content) {
					return nil, bothChanged(path, p.File)
				}
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
		if _, err := patch.Parse(p.File, raw); err != nil {
			return nil, exit.Preconditionf("the edits of the tree leave nothing of %s: remove the file instead; nothing was changed", p.File)
		}
		if !bytes.Equal(raw, p.Raw) {
			outs = append(outs, output{p.File, raw})
		}
	}
	return outs, nil
}
