// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

const stagingDir = "staging/src/k8s.io"

// pins are the go.mod and go.sum with the third-party versions of a base.
type pins struct {
	mod, sum []byte
	file     *modfile.File
}

func readPins(b *base.Base) (*pins, error) {
	p := &pins{}
	var err error
	dir := filepath.Join(b.Root, filepath.FromSlash(b.Pins))
	if p.mod, err = os.ReadFile(filepath.Join(dir, "go.mod")); err != nil {
		return nil, err
	}
	if p.sum, err = os.ReadFile(filepath.Join(dir, "go.sum")); err != nil {
		return nil, err
	}
	if p.file, err = modfile.Parse("go.mod", p.mod, nil); err != nil {
		return nil, exit.Preconditionf("%v", err)
	}
	return p, nil
}

// goMods adds the go.mod files that upstream's 2018 tree lacks: one for each
// staging repository and fork, and the tree's own with the root's pins, so
// that the go command and an editor work inside the tree as well.
func (t *Tree) goMods(want map[string]source, p *pins) error {
	if t.Base.Mode == base.ModeGOPATH {
		return nil
	}
	local := map[string]string{} // module path -> folder relative to the tree
	for path := range want {
		// What is left of upstream's vendor/ in the module would make the go
		// command look for all dependencies there.
		if strings.HasPrefix(path, "vendor/") {
			delete(want, path)
		}
		if rest, ok := strings.CutPrefix(path, stagingDir+"/"); ok {
			if name, _, ok := strings.Cut(rest, "/"); ok {
				local["k8s.io/"+name] = "./" + stagingDir + "/" + name
			}
		}
	}
	for _, f := range t.Base.Forks {
		local[f.Module] = "./" + f.Dir
	}
	for mod, dir := range local {
		want[strings.TrimPrefix(dir, "./")+"/go.mod"] = fromBytes([]byte("module " + mod + "\n\ngo " + goVersion + "\n"))
	}
	mod, err := treeMod(t.Base, p, local)
	if err != nil {
		return err
	}
	want["go.mod"] = fromBytes(mod)
	want["go.sum"] = fromBytes(p.sum)
	return nil
}

// treeMod is the root's go.mod turned round: the upstream module is the main
// one, and what lies in the tree is replaced by folders of it.
func treeMod(b *base.Base, p *pins, local map[string]string) ([]byte, error) {
	f := new(modfile.File)
	steps := []error{f.AddModuleStmt(b.Module), f.AddGoStmt(goVersion)}
	for _, g := range p.file.Godebug {
		steps = append(steps, f.AddGodebug(g.Key, g.Value))
	}
	for _, v := range requirements(b, p, local) {
		if v.Path != b.Module {
			steps = append(steps, f.AddRequire(v.Path, v.Version))
		}
	}
	for _, path := range sortedKeys(local) {
		steps = append(steps, f.AddReplace(path, "", local[path], ""))
	}
	for _, r := range p.file.Replace {
		if !strings.HasPrefix(r.New.Path, "./") {
			steps = append(steps, f.AddReplace(r.Old.Path, r.Old.Version, r.New.Path, r.New.Version))
		}
	}
	for _, err := range steps {
		if err != nil {
			return nil, err
		}
	}
	f.Cleanup()
	return f.Format()
}

// requirements are the pins with the base's own on top. Staging repositories
// that the base does not have are left out.
func requirements(b *base.Base, p *pins, local map[string]string) []module.Version {
	have := map[string]string{}
	staging := p.staging()
	for _, r := range p.file.Require {
		if staging[r.Mod.Path] && local[r.Mod.Path] == "" {
			continue
		}
		have[r.Mod.Path] = r.Mod.Version
	}
	for path, dir := range local {
		if strings.Contains(dir, "/"+stagingDir+"/") {
			have[path] = "v0.0.0"
		}
	}
	for path, v := range b.Require {
		have[path] = v
	}
	out := make([]module.Version, 0, len(have))
	for _, path := range sortedKeys(have) {
		out = append(out, module.Version{Path: path, Version: have[path]})
	}
	return out
}

// staging are the modules that the pins' go.mod takes from the staging folder of
// a tree: those that the base of these pins has.
func (p *pins) staging() map[string]bool {
	out := map[string]bool{}
	for _, r := range p.file.Replace {
		if strings.Contains(r.New.Path, "/"+stagingDir+"/") {
			out[r.Old.Path] = true
		}
	}
	return out
}

// RootMod writes the go.mod and go.sum with which the root module builds this
// tree, and returns the -modfile to use: the root's own where that is the one.
func (t *Tree) RootMod() (string, error) {
	p, err := readPins(t.Base)
	if err != nil {
		return "", err
	}
	dir := "./" + filepath.ToSlash(t.rel(t.Dir()))
	for _, r := range p.file.Replace {
		if r.Old.Path == t.Base.Module && r.New.Path == dir {
			return "", nil
		}
	}
	local := map[string]string{t.Base.Module: dir}
	names, err := os.ReadDir(filepath.Join(t.Dir(), filepath.FromSlash(stagingDir)))
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if n.IsDir() {
			local["k8s.io/"+n.Name()] = dir + "/" + stagingDir + "/" + n.Name()
		}
	}
	for _, f := range t.Base.Forks {
		local[f.Module] = dir + "/" + f.Dir
	}
	// Pins of a base's own are in a module of another name, so that its folder is not the root.
	if err := p.file.AddModuleStmt("holdfast"); err != nil {
		return "", err
	}
	want := requirements(t.Base, p, local)
	staging := p.staging()
	for _, r := range slices.Clone(p.file.Require) {
		if staging[r.Mod.Path] && local[r.Mod.Path] == "" {
			if err := p.file.DropRequire(r.Mod.Path); err != nil {
				return "", err
			}
		}
	}
	for _, r := range slices.Clone(p.file.Replace) {
		if strings.HasPrefix(r.New.Path, "./") {
			if err := p.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return "", err
			}
		}
	}
	p.file.Cleanup() // what was dropped must be gone before anything is added
	for _, path := range sortedKeys(local) {
		if err := p.file.AddReplace(path, "", local[path], ""); err != nil {
			return "", err
		}
	}
	for _, v := range want {
		if err := p.file.AddRequire(v.Path, v.Version); err != nil {
			return "", err
		}
	}
	if err := p.file.AddRequire(t.Base.Module, t.Base.Version); err != nil {
		return "", err
	}
	p.file.Cleanup()
	out, err := p.file.Format()
	if err != nil {
		return "", err
	}
	file := filepath.Join(t.Base.Output(), "mod", t.Base.Name+"-"+t.Variant.Dir()+".mod")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	if err := writeFile(strings.TrimSuffix(file, ".mod")+".sum", p.sum, 0o644); err != nil {
		return "", err
	}
	return file, writeFile(file, out, 0o644)
}
