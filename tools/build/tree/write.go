// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"holdfast/tools/build/base"
)

// writeFile replaces path in one step, so that neither a reader nor a run
// after an interruption meets half of it.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// write makes the tree equal to want. go.mod goes first and comes back last
// (in GOPATH mode a file that does not compile stands in for its absence), so
// that a tree whose writing was interrupted does not build.
func (t *Tree) write(key string, old *manifest, want map[string]source) (*Result, error) {
	dir := t.Dir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	res := &Result{}
	m := &manifest{Key: key, Incomplete: true, Files: old.Files, Generated: old.Generated, Planned: make(map[string]string, len(want))}
	for path, s := range want {
		m.Planned[path] = s.sum
	}
	if err := t.saveManifest(m); err != nil {
		return nil, err
	}
	block, unblock := t.barrier()
	if err := block(); err != nil {
		return nil, err
	}
	next := make(map[string]entry, len(want))
	for _, path := range sortedKeys(want) {
		if path == "go.mod" {
			continue
		}
		e, wrote, err := put(dir, path, want[path], old.Files[path])
		if err != nil {
			return nil, err
		}
		if wrote {
			res.Written++
		}
		next[path] = e
	}
	for path := range old.Files {
		if _, ok := want[path]; ok {
			continue
		}
		if old.Generated[path] {
			next[path] = old.Files[path] // AddGenerated renews it
			continue
		}
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(path))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		res.Removed++
		removeEmpty(dir, filepath.Dir(filepath.Join(dir, filepath.FromSlash(path))))
	}
	if s, ok := want["go.mod"]; ok {
		e, _, err := put(dir, "go.mod", s, entry{})
		if err != nil {
			return nil, err
		}
		next["go.mod"] = e
	}
	if err := unblock(); err != nil {
		return nil, err
	}
	m = &manifest{Key: key, Files: next, Generated: old.Generated}
	return res, t.saveManifest(m)
}

// removeEmpty removes dir and the folders above it, up to root, as long as they
// are empty: an empty vendor/ alone changes how the go command works.
func removeEmpty(root, dir string) {
	for ; dir != root && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
}

// barrierName and barrierText are the file that does not compile.
const (
	barrierName = "incomplete.go"
	barrierText = "this tree is half-written: run make\n"
)

func isBarrier(file string) bool {
	if filepath.Base(file) != barrierName {
		return false
	}
	content, err := os.ReadFile(file)
	return err == nil && string(content) == barrierText
}

// barrier keeps a half-written tree from building.
func (t *Tree) barrier() (block, unblock func() error) {
	if t.Base.Mode == base.ModeModule {
		gomod := filepath.Join(t.Dir(), "go.mod")
		return func() error {
			if err := os.Remove(gomod); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}, func() error { return nil }
	}
	var files []string
	for _, b := range t.Base.Binaries {
		files = append(files, filepath.Join(t.Dir(), filepath.FromSlash(b.Package), barrierName))
	}
	return func() error {
			for _, f := range files {
				if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(f, []byte(barrierText), 0o644); err != nil {
					return err
				}
			}
			return nil
		}, func() error {
			for _, f := range files {
				if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			return nil
		}
}

// put writes one file unless it already is what it should be.
func put(dir, path string, s source, old entry) (entry, bool, error) {
	file := filepath.Join(dir, filepath.FromSlash(path))
	info, err := os.Lstat(file)
	sameMode := err == nil && info.Mode().Perm() == s.mode
	if sameMode && old.Sum == s.sum && info.Size() == old.Size && info.ModTime().UnixNano() == old.MTime {
		return old, false, nil
	}
	content, rerr := s.read()
	if rerr != nil {
		return entry{}, false, rerr
	}
	wrote := false
	if have, rerr := os.ReadFile(file); rerr != nil || sha(have) != s.sum || !sameMode {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return entry{}, false, err
		}
		if err := writeFile(file, content, s.mode); err != nil {
			return entry{}, false, err
		}
		wrote = true
	}
	info, err = os.Lstat(file)
	if err != nil {
		return entry{}, false, err
	}
	return entry{info.Size(), info.ModTime().UnixNano(), s.sum}, wrote, nil
}
