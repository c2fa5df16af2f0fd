// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tree materialises a base: upstream's module as the module cache
// holds it, our overlay and a patch series become one source tree below
// _output/src, from which the binaries are built and the tests are run.
//
// A tree is described by its manifest, _output/src/<base>/<variant>.json:
// which input it was made of and what each file was when it was written. The
// manifest makes the step incremental, and lets it see files that somebody
// edited since, which it never overwrites.
package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"syscall"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/patch"
)

// format is part of each tree's key: raise it when this package comes to
// write other files from the same input.
const format = "5"

// goVersion is the go directive of the generated go.mod files: the language
// of 2018 (one loop variable per loop) as the newest one that has it and all
// GODEBUG defaults we can ask for. See docs/design/toolchain.md.
const goVersion = "1.20"

// manifest is the JSON beside a tree.
type manifest struct {
	Key   string           `json:"key"`
	Files map[string]entry `json:"files"`
	// Generated names the files that were made from the tree itself.
	Generated map[string]bool `json:"generated,omitempty"`
	// Incomplete is set while files are being written.
	Incomplete bool `json:"incomplete,omitempty"`
	// Planned is, while Incomplete, the sum of each file that is being
	// written: what an interrupted run wrote is known by it.
	Planned map[string]string `json:"planned,omitempty"`
}

type entry struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // ns since 1970
	Sum   string `json:"sum"`   // sha256, hex
}

// source is where one file of the tree comes from: a file of the module
// cache, or content made here.
type source struct {
	path    string
	content []byte
	sum     string
	mode    fs.FileMode
}

func (s source) read() ([]byte, error) {
	if s.path == "" {
		return s.content, nil
	}
	return os.ReadFile(s.path)
}

func fromBytes(content []byte) source {
	return source{content: content, sum: sha(content), mode: 0o644}
}

func sha(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Tree is one base in one variant.
type Tree struct {
	Base    *base.Base
	Variant base.Variant
	// Offline: never ask the network for a module.
	Offline bool
}

// Dir is the tree's root.
func (t *Tree) Dir() string { return t.Base.SrcDir(t.Variant) }

func (t *Tree) manifestFile() string {
	return filepath.Join(t.Base.Output(), "src", t.Base.Name, t.Variant.Dir()+".json")
}

func (t *Tree) rel(path string) string {
	if r, err := filepath.Rel(t.Base.Root, path); err == nil {
		return r
	}
	return path
}

// Result says what Materialise did.
type Result struct {
	Written, Removed int // files
	UpToDate         bool
}

// String says it in a few words, for a progress line.
func (r *Result) String() string {
	if r.UpToDate {
		return "up to date"
	}
	return fmt.Sprintf("%d files written, %d removed", r.Written, r.Removed)
}

// Materialise brings the tree up to date. It first computes everything and
// only then touches the tree: a module whose sum is wrong or a patch that does
// not apply leaves the old tree as it was. Edited files are never overwritten.
func (t *Tree) Materialise() (*Result, error) {
	if err := t.Base.HasVariant(t.Variant); err != nil {
		return nil, err
	}
	unlock, err := t.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	own, err := t.ownFiles()
	if err != nil {
		return nil, err
	}
	patches, err := t.patches()
	if err != nil {
		return nil, err
	}
	pins, err := t.pins()
	if err != nil {
		return nil, err
	}
	key := t.key(own, patches, pins)
	old, edited, err := t.state()
	if err != nil {
		return nil, err
	}
	if old.Key == key && !old.Incomplete && len(edited) == 0 {
		return &Result{UpToDate: true}, nil
	}

	want, err := t.content(own, patches)
	if err != nil {
		return nil, err
	}
	if err := t.goMods(want, pins); err != nil {
		return nil, err
	}
	if err := t.refuseEdited(edited, want); err != nil {
		return nil, err
	}
	return t.write(key, old, want)
}

// lock keeps two commands from writing one tree.
func (t *Tree) lock() (func(), error) {
	dir := filepath.Dir(t.manifestFile())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, t.Variant.Dir()+".lock")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintf(os.Stderr, "waiting for another holdfast command, which holds %s\n", t.rel(file))
		err = flock(f, syscall.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", t.rel(file), err)
	}
	return func() { f.Close() }, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// pins reads the go.mod and go.sum with the base's third-party versions.
func (t *Tree) pins() (*pins, error) {
	if t.Base.Mode == base.ModeGOPATH {
		return nil, nil
	}
	return readPins(t.Base)
}

// key names everything the tree is made of.
func (t *Tree) key(own map[string]source, patches []*patch.Patch, p *pins) string {
	h := sha256.New()
	desc, _ := json.Marshal(t.Base)
	fmt.Fprintf(h, "%s\n%s\n%s\n", format, t.Variant, desc)
	for _, path := range sortedKeys(own) {
		fmt.Fprintf(h, "%s %s %o\n", path, own[path].sum, own[path].mode)
	}
	for _, p := range patches {
		fmt.Fprintf(h, "%s %s\n", p.Name, sha(p.Raw))
	}
	if p != nil {
		fmt.Fprintf(h, "%s %s\n", sha(p.mod), sha(p.sum))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (t *Tree) loadManifest() (*manifest, error) {
	m := &manifest{Files: map[string]entry{}}
	raw, err := os.ReadFile(t.manifestFile())
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, exit.Preconditionf("%s is damaged (%v): remove it together with %s and run make again", t.rel(t.manifestFile()), err, t.rel(t.Dir()))
	}
	return m, nil
}

func (t *Tree) saveManifest(m *manifest) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(t.manifestFile(), raw, 0o644)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// Key names everything that the tree is to be made of; two trees with equal
// keys are equal.
func (t *Tree) Key() (string, error) {
	own, err := t.ownFiles()
	if err != nil {
		return "", err
	}
	patches, err := t.patches()
	if err != nil {
		return "", err
	}
	p, err := t.pins()
	if err != nil {
		return "", err
	}
	return t.key(own, patches, p), nil
}
