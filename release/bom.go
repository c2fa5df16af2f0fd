// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// module is a Go module that a program links, as upstream named it.
type module struct {
	path, version, sum string
	// tree is where the module is in the patched tree, "" if it was taken as it is; "." is
	// upstream's own.
	tree string
}

func (m module) purl() string { return "pkg:golang/" + m.path + "@" + m.version }

// modules are those that a program links, the main one first, by what the linker wrote into it.
func (b *builder) modules(file string) (*buildinfo.BuildInfo, []module, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	if info.Main.Path == "" { // built as a GOPATH: upstream's own copies of all libraries
		info.Main.Path = b.base.Module
		if info.Deps, err = b.godeps(file); err != nil {
			return nil, nil, err
		}
	}
	var list []module
	for _, d := range append([]*debug.Module{&info.Main}, info.Deps...) {
		m := module{path: d.Path, version: d.Version, sum: d.Sum}
		switch replaced := d.Replace; {
		case d.Path == b.base.Module:
			m.version, m.tree, m.sum = b.base.Version, ".", b.base.Sum
		case strings.HasPrefix(d.Path, "holdfast/"):
			m.version = b.version
		case replaced != nil && replaced.Version == "(devel)":
			_, tree, ok := strings.Cut(replaced.Path, "/ours/")
			if !ok {
				_, tree, ok = strings.Cut(replaced.Path, "/apiserver/")
			}
			if !ok {
				return nil, nil, fmt.Errorf("%s links %s of %s, which is no source tree of %s", filepath.Base(file), d.Path, replaced.Path, b.base.Name)
			}
			m.tree = tree
			if strings.HasPrefix(tree, "staging/") { // published as a tag of upstream's
				m.version, m.sum = "kubernetes-"+strings.TrimPrefix(b.base.Version, "v"), b.base.Sum
			}
		case replaced != nil:
			m.version, m.sum = replaced.Version, replaced.Sum
		}
		list = append(list, m)
	}
	return info, list, nil
}

// godeps are the libraries of upstream's tree that a program links, which it does not name itself.
func (b *builder) godeps(file string) ([]*debug.Module, error) {
	cache, err := output(b.root, "go", "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(cache, escape(b.base.Module)+"@"+b.base.Version, "Godeps/Godeps.json"))
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return linkedGodeps(raw, program)
}

// linkedGodeps are the entries of a Godeps.json from which a program has a function: its table of
// functions names their files by import path.
func linkedGodeps(raw, program []byte) ([]*debug.Module, error) {
	var list struct {
		Deps []struct{ ImportPath, Rev string }
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("Godeps.json: %w", err)
	}
	var out []*debug.Module
	for _, d := range list.Deps {
		if bytes.Contains(program, []byte(d.ImportPath+"/")) {
			out = append(out, &debug.Module{Path: d.ImportPath, Version: strings.Trim(d.Rev, "'")})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("Godeps.json: the program links none of its libraries")
	}
	return out, nil
}

// boms writes the SBOM of each program.
func (b *builder) boms() error {
	patches, err := b.patches()
	if err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(b.programs)) {
		bom, err := b.bom(p, b.programs[p], patches)
		if err != nil {
			return err
		}
		if err := b.create("sbom/"+p+".cdx.json", func(f *os.File) error {
			return cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) bom(program, file string, patches map[string][]change) (*cdx.BOM, error) {
	info, list, err := b.modules(file)
	if err != nil {
		return nil, err
	}
	product := "pkg:generic/" + program + "@" + strings.ReplaceAll(b.version, "+", "%2B")
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: b.date.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{Type: cdx.ComponentTypeApplication, BOMRef: product, Name: program, Version: b.version, PackageURL: product}}
	library := func(name, version, purl string) cdx.Component {
		return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: name, Version: version, PackageURL: purl}
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{library("stdlib", goVersion, "pkg:golang/stdlib@"+goVersion)}
	if dynamic(file) { // the node's own; the oldest that will do
		components = append(components, library("glibc", "2.17", "pkg:generic/glibc@2.17"))
	}
	for _, m := range list {
		c := library(m.path, m.version, m.purl())
		if m.tree != "" {
			ancestor := library(m.path, m.version, m.purl())
			ancestor.BOMRef = ""
			ancestor.Properties = &[]cdx.Property{{Name: "holdfast:go.sum", Value: m.sum}}
			c.Pedigree = &cdx.Pedigree{Ancestors: &[]cdx.Component{ancestor}}
			if diffs := of(patches[m.tree], program); len(diffs) > 0 {
				c.Pedigree.Patches = &diffs
			}
		}
		components = append(components, c)
	}
	bom.Components = &components
	return bom, nil
}

func dynamic(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false // of another system
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	return err == nil && len(libs) > 0
}

// change is what one fix changes in one module.
type change struct {
	fix        string
	patch      string   // its file, from the root of this repository
	components []string // the programs that have it; none: all
}

// patches are the changes by the module's place in the tree, as module.tree names it.
func (b *builder) patches() (map[string][]change, error) {
	files, err := filepath.Glob(filepath.Join(b.root, "patches/*", b.base.Name, "*.patch"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("there is no patch of base %s", b.base.Name))
	}
	changed := regexp.MustCompile(`(?m)^(?:\+\+\+ b|--- a)/(.+)$`)
	out := map[string][]change{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(b.root, file)
		if err != nil {
			return nil, err
		}
		fix := strings.Split(filepath.ToSlash(name), "/")[1]
		var form struct {
			Kind       string   `json:"kind"`
			Components []string `json:"components"`
		}
		text, err := os.ReadFile(filepath.Join(b.root, "patches", fix, "fix.json"))
		if err == nil {
			err = json.Unmarshal(text, &form)
		}
		if err != nil {
			return nil, fmt.Errorf("patches/%s/fix.json: %w", fix, err)
		}
		if form.Kind == "toolchain" {
			form.Components = nil
		}
		seen := map[string]bool{}
		for _, m := range changed.FindAllStringSubmatch(string(raw), -1) {
			if tree := treeOf(m[1]); !seen[tree] {
				seen[tree] = true
				out[tree] = append(out[tree], change{fix, filepath.ToSlash(name), form.Components})
			}
		}
	}
	return out, nil
}

// treeOf is the module that a file of the tree belongs to, by its folder.
func treeOf(file string) string {
	parts := strings.Split(file, "/")
	switch {
	case parts[0] == "staging" && len(parts) > 4:
		return path.Join(parts[:4]...)
	case parts[0] == "third_party" && len(parts) > 4 && strings.Contains(parts[1], "."):
		return path.Join(parts[:4]...)
	}
	return "."
}

// of are the patches that a program has.
func of(changes []change, program string) []cdx.Patch {
	var out []cdx.Patch
	for _, c := range changes {
		if len(c.components) == 0 || slices.Contains(c.components, program) {
			out = append(out, cdx.Patch{Type: cdx.PatchTypeUnofficial, Diff: &cdx.Diff{URL: c.patch},
				Resolves: &[]cdx.Issue{{ID: c.fix, Name: c.fix, Type: cdx.IssueTypeDefect}}})
		}
	}
	return out
}

// licences writes LICENSES: the licence of each module that a program links. A module without a
// text fails.
func (b *builder) licences() error {
	cache, err := output(b.root, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	goroot, err := output(b.root, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	texts := map[string]string{} // of a module's path and version
	var bad []string
	for _, p := range slices.Sorted(maps.Keys(b.programs)) {
		_, list, err := b.modules(b.programs[p])
		if err != nil {
			return err
		}
		for _, m := range list {
			key := m.path + " " + m.version
			if texts[key] != "" {
				continue
			}
			dir := filepath.Join(cache, escape(m.path)+"@"+escape(m.version))
			switch {
			case strings.HasPrefix(m.path, "holdfast/"):
				dir = b.root
			case m.tree == "." || strings.HasPrefix(m.tree, "staging/"):
				dir = filepath.Join(cache, escape(b.base.Module)+"@"+b.base.Version)
			}
			if texts[key], err = licenceIn(dir); err != nil {
				return err
			}
			if texts[key] == "" {
				if texts[key], err = b.upstreamLicence(cache, m.path); err != nil {
					return err
				}
			}
			if texts[key] == "" {
				bad = append(bad, fmt.Sprintf("%s %s, which %s links, has no licence in %s", m.path, m.version, p, dir))
			}
		}
	}
	if len(bad) > 0 {
		return failf("LICENSES: a module without a licence cannot be released:\n%s", strings.Join(bad, "\n"))
	}
	if texts["Go"], err = licenceIn(goroot); err != nil || texts["Go"] == "" {
		return errors.Join(err, fmt.Errorf("%s has no licence", goroot))
	}
	var page strings.Builder
	fmt.Fprintf(&page, "Licences of what the programs of Holdfast %s link\n", b.version)
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(&page, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), key, strings.TrimSpace(texts[key]))
	}
	return b.text("LICENSES", page.String())
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|notice|copyright|patents)([.-].*)?$`)

// licenceIn are the texts of licences in a module's root, "" if there are none.
func licenceIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && licenceName.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
			raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return "", err
			}
			out = append(out, string(raw))
		}
	}
	return strings.Join(out, "\n"), nil
}

// upstreamLicence is the text that upstream's list has for a module whose own release has none, or
// for a library of which upstream's tree has a copy.
func (b *builder) upstreamLicence(cache, path string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(cache, escape(b.base.Module)+"@"+b.base.Version, "Godeps/LICENSES"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	rule := strings.Repeat("=", 80)
	for _, part := range strings.Split(string(raw), rule) {
		first, _, _ := strings.Cut(strings.TrimSpace(part), "\n")
		for _, folder := range []string{"= vendor/", "= Godeps/_workspace/src/"} {
			if rest, ok := strings.CutPrefix(first, folder); ok {
				name, _, _ := strings.Cut(rest, " ")
				if name == path || strings.HasPrefix(name, path+"/") {
					return part, err
				}
			}
		}
	}
	return "", err
}

// escape is a module's path or version as the module cache has it: !a for A.
func escape(s string) string {
	var out strings.Builder
	for _, c := range s {
		if unicode.IsUpper(c) {
			out.WriteByte('!')
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return out.String()
}
