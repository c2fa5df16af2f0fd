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
	"slices"
	"sort"
	"strings"
	"syscall"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/patch"
	"holdfast/tools/internal/slugs"
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
// whether this tree has them, stands in slugs.json.
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

// ownFiles reads the files of ours that the variant's slugs have.
func (t *Tree) ownFiles() (map[string]source, error) {
	all, err := t.overlay()
	if err != nil {
		return nil, err
	}
	have, err := t.Base.SlugsOf(t.Variant)
	if err != nil {
		return nil, err
	}
	out := map[string]source{}
	for _, rel := range sortedKeys(all) {
		s := t.Base.Slugs.OfFile(t.Base.Name, rel)
		if s == nil {
			if len(t.Base.Slugs.Claims(rel)) > 0 {
				continue // another base's
			}
			return nil, exit.Preconditionf("%s is in no slug: add it to the overlay of one in %s, or remove it", t.rel(all[rel]), slugs.File)
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
	return out, nil
}

// patches loads the variant's patches. Where some of a series are left out,
// those behind them have their line numbers moved (see patch.Without).
func (t *Tree) patches() ([]*patch.Patch, error) {
	have, err := t.Base.SlugsOf(t.Variant)
	if err != nil {
		return nil, err
	}
	var all []*patch.Patch
	for _, dir := range t.Base.SeriesOf(t.Variant) {
		ps, err := patch.LoadSeries(t.Base.Root, dir)
		if err != nil {
			return nil, err
		}
		all = append(all, ps...)
	}
	gone := map[*patch.Patch]bool{}
	for _, p := range all {
		s := t.Base.Slugs.OfPatch(t.Base.Name, p.Name)
		if s == nil {
			return nil, exit.Preconditionf("%s is in no slug of base %s: add it to the patches of one in %s", p.File, t.Base.Name, slugs.File)
		}
		gone[p] = !slices.Contains(have, s)
	}
	return patch.Without(all, func(p *patch.Patch) bool { return gone[p] })
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
	return exit.Preconditionf("%s was edited by hand:\n%s%s\nCarry the edits back with make patches-extract, or give them up with make discard-edits; nothing was changed",
		t.rel(t.Dir()), strings.Join(lost, "\n"), more)
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

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
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

// Own is the content of the files of the tree that are not upstream's: those of
// the overlay, and those that the variant's patches change, as they leave them;
// and of the files also, as far as the tree has them. Nothing is written.
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
