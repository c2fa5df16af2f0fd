// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"holdfast/tools/build/exit"
)

// state reads the manifest and compares the tree with it. What an interrupted
// run wrote counts as written.
func (t *Tree) state() (*manifest, []Edit, error) {
	m, err := t.loadManifest()
	if err != nil {
		return nil, nil, err
	}
	for path, sum := range m.Planned {
		if m.Files[path].Sum == sum {
			continue
		}
		file := filepath.Join(t.Dir(), filepath.FromSlash(path))
		content, err := os.ReadFile(file)
		if err != nil || sha(content) != sum {
			continue
		}
		info, err := os.Lstat(file)
		if err != nil {
			return nil, nil, err
		}
		m.Files[path] = entry{info.Size(), info.ModTime().UnixNano(), sum}
	}
	edits, err := t.edited(m)
	return m, edits, err
}

// Edit is a file of the tree that is not as it was written.
type Edit struct {
	Path string
	Kind string // "changed", "removed" or "added"
}

// edited compares the tree with its manifest. Only Go files count as added:
// upstream's tests leave other files behind.
func (t *Tree) edited(m *manifest) ([]Edit, error) {
	var out []Edit
	seen := map[string]bool{}
	root := t.Dir()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		e, ok := m.Files[rel]
		if !ok {
			if strings.HasSuffix(rel, ".go") && !isBarrier(path) {
				out = append(out, Edit{rel, "added"})
			}
			return nil
		}
		seen[rel] = true
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() == e.Size && info.ModTime().UnixNano() == e.MTime {
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil && sha(content) != e.Sum {
			out = append(out, Edit{rel, "changed"})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for path := range m.Files {
		if !seen[path] {
			out = append(out, Edit{path, "removed"})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out, nil
}

// refuseEdited stops when writing would lose somebody's edit. An edit that is
// what would be written anyway is none.
func (t *Tree) refuseEdited(edited []Edit, want map[string]source) error {
	var lost []string
	for _, e := range edited {
		if e.Kind == "removed" {
			continue // written again
		}
		if s, ok := want[e.Path]; ok {
			content, err := os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(e.Path)))
			if err != nil {
				return err
			}
			if sha(content) == s.sum {
				continue
			}
		}
		lost = append(lost, fmt.Sprintf("  %s (%s)", e.Path, e.Kind))
	}
	if len(lost) == 0 {
		return nil
	}
	const most = 20
	more := ""
	if len(lost) > most {
		more = fmt.Sprintf("\n  and %d more", len(lost)-most)
		lost = lost[:most]
	}
	return exit.Preconditionf("%s was edited by hand:\n%s%s\nCarry the edits back with make patches-extract, or discard them with make discard-edits; nothing was changed",
		t.rel(t.Dir()), strings.Join(lost, "\n"), more)
}

// Discard gives up all edits, so that the next Materialise writes those files
// anew, and returns what it gave up.
func (t *Tree) Discard() ([]Edit, error) {
	if err := t.Base.HasVariant(t.Variant); err != nil {
		return nil, err
	}
	unlock, err := t.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, edited, err := t.state()
	if err != nil {
		return nil, err
	}
	for _, e := range edited {
		if e.Kind == "removed" {
			continue
		}
		if err := os.Remove(filepath.Join(t.Dir(), filepath.FromSlash(e.Path))); err != nil {
			return nil, err
		}
	}
	return edited, nil
}
