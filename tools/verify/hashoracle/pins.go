// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// pins are a go.mod and its go.sum.
type pins struct {
	file *modfile.File
	sums map[string]string // "module version" -> h1
}

// with returns the builder with the pins of a release.
func (b *builder) with(r Release) (*builder, error) {
	if r.pins == "" {
		return b, nil
	}
	p, err := readPins(filepath.Join(b.root, filepath.FromSlash(r.pins)))
	return &builder{b.root, b.dir, b.log, p}, err
}

func readPins(folder string) (*pins, error) {
	p := &pins{sums: map[string]string{}}
	data, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return nil, err
	}
	if p.file, err = modfile.Parse("go.mod", data, nil); err != nil {
		return nil, err
	}
	if data, err = os.ReadFile(filepath.Join(folder, "go.sum")); err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			p.sums[f[0]+" "+f[1]] = f[2]
		}
	}
	return p, nil
}

// pinned reports whether the modules that a file lists, "path version" a line,
// are still at these versions in go.mod.
func (b *builder) pinned(file string) bool {
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(data), "\n") {
		path, version, _ := strings.Cut(line, " ")
		if m, _ := b.pin(path); m.version != version {
			return false
		}
	}
	return true
}

// moduleOf returns the path of the module that has a package, and what is used
// for it.
func (b *builder) moduleOf(r Release, pkg string) (path string, m mod) {
	within := func(path string) bool { return pkg == path || strings.HasPrefix(pkg, path+"/") }
	for _, m := range r.other {
		if within(m.path) {
			return m.path, m
		}
	}
	for _, req := range b.file.Require {
		if within(req.Mod.Path) && len(req.Mod.Path) > len(path) {
			path = req.Mod.Path
		}
	}
	m, _ = b.pin(path)
	return path, m
}

// pin returns what go.mod uses for a module, after its replacements. A folder
// of the repository has no version.
func (b *builder) pin(path string) (m mod, ok bool) {
	for _, req := range b.file.Require {
		if req.Mod.Path == path {
			m, ok = mod{path: path, version: req.Mod.Version}, true
		}
	}
	for _, rep := range b.file.Replace {
		if rep.Old.Path == path {
			m.path, m.version = rep.New.Path, rep.New.Version
		}
	}
	m.sum = b.sums[m.path+" "+m.version]
	return m, ok
}

// download returns the folder of a module in the module cache. The sum is the
// one that is pinned.
func (b *builder) download(m mod) (string, error) {
	if m.sum == "" {
		return "", fmt.Errorf("no sum is pinned for module %s@%s", m.path, m.version)
	}
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir, cmd.Env = os.TempDir(), goEnv("GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jerr := json.Unmarshal(out, &got); jerr != nil || got.Error != "" || err != nil {
		return "", fmt.Errorf("go mod download %s@%s: %v %s", m.path, m.version, err, got.Error)
	}
	if got.Sum != m.sum {
		return "", fmt.Errorf("module %s@%s has sum %s, pinned is %s", m.path, m.version, got.Sum, m.sum)
	}
	return got.Dir, nil
}
