// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/internal/digest"
	"holdfast/tools/internal/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// Keys tells what cells are made from.
type Keys struct {
	root     string
	source   func(labkit.Binary) (string, error)
	sources  map[labkit.Binary]string
	packages map[string]*goPackage // of the module of the tools, by import path
	modules  map[string]string     // digests of further modules of the repository
}

const (
	toolsModule = "holdfast/tools"
	runPackage  = toolsModule + "/labkit/run"
)

type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	EmbedFiles      []string
	Deps            []string
}

// NewKeys reads the packages of the labs below root. source is a digest of what a
// binary is built from.
func NewKeys(root string, source func(labkit.Binary) (string, error)) (*Keys, error) {
	k := &Keys{root: root, source: source, sources: map[labkit.Binary]string{}, packages: map[string]*goPackage{}, modules: map[string]string{}}
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,EmbedFiles,Deps", "./labs/...", "./labkit/run", "./cmd/...")
	cmd.Dir, cmd.Env = filepath.Join(root, "tools"), append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, exit.Preconditionf("go list in tools: %v\n%s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &goPackage{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return k, nil
		} else if err != nil {
			return nil, err
		}
		k.packages[p.ImportPath] = p
	}
}

// Key is a digest of what a cell is made from: its binaries (see
// holdfast source-key), the code and data of its lab and of the kit, the programs
// of ours that it runs, its profile and seed. Two runs with one key show the same.
func (k *Keys) Key(c Cell) (string, error) {
	l, err := labkit.Find(c.Lab)
	if err != nil {
		return "", err
	}
	d := digest.New()
	d.Line("%s %s %s %d %q", c.Lab, c.Variant, c.Profile, c.Seed, l.Gates())
	for _, need := range l.NeedsIn(c.Profile) {
		need = need.For(c.Variant)
		key, err := k.binary(need)
		if err != nil {
			return "", err
		}
		d.Line("%s %s", need, key)
	}
	packages := []string{toolsModule + "/labs/" + l.Home(), runPackage}
	for _, tool := range run.OwnTools {
		packages = append(packages, toolsModule+"/cmd/"+tool)
	}
	if err := k.addPackages(d, packages...); err != nil {
		return "", err
	}
	// The libraries that the lab itself is built from.
	for _, name := range []string{"go.mod", "go.sum"} {
		raw, err := os.ReadFile(filepath.Join(k.root, "tools", name))
		if err != nil {
			return "", err
		}
		d.File("tools/"+name, raw)
	}
	for _, m := range l.Modules {
		if err := k.addModule(d, m); err != nil {
			return "", err
		}
	}
	return d.String(), nil
}

func (k *Keys) binary(n labkit.Binary) (string, error) {
	if k.sources[n] == "" {
		var err error
		if k.sources[n], err = k.source(n); err != nil {
			return "", err
		}
	}
	return k.sources[n], nil
}

// addPackages adds the files of packages and of what they import in the module
// of the tools.
func (k *Keys) addPackages(d *digest.Digest, paths ...string) error {
	var all []string
	for _, path := range paths {
		p := k.packages[path]
		if p == nil {
			return exit.Preconditionf("%s is no package of the tools", path)
		}
		all = append(append(all, path), p.Deps...)
	}
	slices.Sort(all)
	for _, path := range slices.Compact(all) {
		p := k.packages[path]
		if p == nil || !strings.HasPrefix(path, toolsModule+"/") {
			continue
		}
		for _, f := range append(slices.Clone(p.GoFiles), p.EmbedFiles...) {
			raw, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				return err
			}
			d.File(path+"/"+f, raw)
		}
	}
	return nil
}

// addModule adds the files of a module of the repository: Go, but no tests, and
// what is beside it.
func (k *Keys) addModule(d *digest.Digest, dir string) error {
	if k.modules[dir] == "" {
		own := digest.New()
		err := own.Tree(k.root, dir, func(p string, e fs.DirEntry) bool {
			if e.IsDir() {
				return slices.Contains([]string{"vendor", "testdata"}, e.Name())
			}
			return strings.HasSuffix(p, "_test.go") || strings.HasSuffix(p, ".md")
		})
		if err != nil {
			return exit.Preconditionf("module %s: %v", dir, err)
		}
		k.modules[dir] = own.String()
	}
	d.Line("module %s %s", dir, k.modules[dir])
	return nil
}
