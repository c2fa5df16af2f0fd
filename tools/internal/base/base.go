// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package base reads bases/<version>/base.json: what one upstream release is
// made of (module, sum, forks, overlay, patch series) and which binaries are
// built from it.
package base

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"holdfast/tools/internal/exit"
)

// The variants a base can be built in.
const (
	Stock = "stock" // upstream + toolchain series
	Ours  = "ours"  // stock + overlay + OwnSeries
)

// OwnSeries are the series that only the variant Ours has, in the order in which
// they are applied. A base need not have each.
var OwnSeries = []string{"security", "carry"}

// The ways a base is built.
const (
	ModeModule = "module" // from the root go.mod's pins
	ModeGOPATH = "gopath" // with the dependencies inside the upstream module (1.2)
)

// Base is one base.json. Paths in it are relative to the repository's root,
// except where the field says otherwise.
type Base struct {
	Name    string `json:"base"`    // name of the folder below bases/, e.g. "v1.9.11"
	Module  string `json:"module"`  // upstream module path
	Version string `json:"version"` // upstream module version
	Sum     string `json:"sum"`     // "h1:" sum of the module's zip
	Mode    string `json:"mode"`    // ModeModule or ModeGOPATH

	// Release is what `--version` of our variant prints, e.g.
	// "v1.9.11+holdfast.1"; empty for a base that has no variant of ours.
	Release string `json:"release,omitempty"`
	// GitCommit and BuildDate (RFC 3339) go into stock binaries: those of
	// upstream's release as far as they are known.
	GitCommit string `json:"gitCommit,omitempty"`
	BuildDate string `json:"buildDate,omitempty"`

	Variants []string `json:"variants"`
	// Without names, per lab-only variant, the patches of the toolchain series
	// that it leaves out of stock.
	Without map[string][]string `json:"without,omitempty"`
	Overlay []Overlay           `json:"overlay,omitempty"`
	Series  map[string]string   `json:"series"` // series name -> folder with its series file
	Forks   []Fork              `json:"forks,omitempty"`
	// Lang is given to the compiler as -lang for LangPackages: in GOPATH mode
	// no go.mod says which language the source was written in.
	Lang         string   `json:"lang,omitempty"`
	LangPackages []string `json:"langPackages,omitempty"`
	// Renames are applied to upstream's files before any patch.
	Renames []Rename `json:"renames,omitempty"`
	// Require overrides or adds pins to those of the root go.mod.
	Require  map[string]string `json:"require,omitempty"`
	OpenAPI  *OpenAPI          `json:"openapi,omitempty"`
	Binaries map[string]Binary `json:"binaries"`

	Root string `json:"-"` // repository root, absolute
}

const ownModule = "holdfast/"

// Own says whether the binary is a lab's own program, in the root module.
func (bin Binary) Own() bool { return strings.HasPrefix(bin.Package, ownModule) }

// ImportPath is where the go command finds the binary's main package.
func (b *Base) ImportPath(bin Binary) string {
	if bin.Own() {
		return bin.Package
	}
	return path.Join(b.Module, bin.Package)
}

// Overlay is a folder of ours that is laid over the tree.
type Overlay struct {
	From string `json:"from"`
	To   string `json:"to"` // relative to the tree; "." is its root
	// Series is the series that it belongs to; empty: carry.
	Series string `json:"series,omitempty"`
}

// Fork is a third-party module that is copied into the tree, so that the
// toolchain series can patch it.
type Fork struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	Sum     string `json:"sum"`
	Dir     string `json:"dir"` // relative to the tree
}

// Rename moves one upstream file.
type Rename struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// OpenAPI says which in-tree generator writes pkg/generated/openapi.
type OpenAPI struct {
	Generator string `json:"generator"` // package path of the generator
}

// Binary is one program of the base.
type Binary struct {
	// Package is relative to the module, e.g. "./cmd/kubelet", or a lab's own
	// program in the root module, e.g. "holdfast/labs/…", linked with the tree.
	Package string `json:"package"`
	// Cgo: built with cgo and linked dynamically, as upstream's release was.
	Cgo bool `json:"cgo"`
	// CgoCFLAGS, CgoLDFLAGS and LDFlags are added to the build of this one.
	CgoCFLAGS  string `json:"cgoCFlags,omitempty"`
	CgoLDFLAGS string `json:"cgoLDFlags,omitempty"`
	LDFlags    string `json:"ldflags,omitempty"`
	// CgoInclude is a folder of headers and linker scripts, relative to the
	// root. The C tools get it through their environment: a flag with a path in
	// it would put the place of the checkout into the binary.
	CgoInclude string `json:"cgoInclude,omitempty"`
	// DropIn: part of the product, built by `make`. The others are for labs.
	DropIn bool `json:"dropIn,omitempty"`
}

// Load reads bases/<name>/base.json below root.
func Load(root, name string) (*Base, error) {
	file := filepath.Join(root, "bases", name, "base.json")
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		known, _ := Names(root)
		return nil, exit.Usagef("unknown base %q: no %s; the bases are %s",
			name, rel(root, file), strings.Join(known, ", "))
	}
	if err != nil {
		return nil, err
	}
	b := &Base{Root: root}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(b); err != nil {
		return nil, exit.Preconditionf("%s: %v", rel(root, file), err)
	}
	if d.More() {
		return nil, exit.Preconditionf("%s: more than one JSON value", rel(root, file))
	}
	if err := b.validate(name); err != nil {
		return nil, exit.Preconditionf("%s: %v", rel(root, file), err)
	}
	return b, nil
}

func (b *Base) validate(name string) error {
	if b.Name != name {
		return fmt.Errorf(`"base" is %q, the folder is %q: make them equal`, b.Name, name)
	}
	for field, v := range map[string]string{"module": b.Module, "version": b.Version} {
		if v == "" {
			return fmt.Errorf("%q is empty", field)
		}
	}
	if !strings.HasPrefix(b.Sum, "h1:") {
		return fmt.Errorf(`"sum" is %q: it wants the module's "h1:" sum`, b.Sum)
	}
	if b.Mode != ModeModule && b.Mode != ModeGOPATH {
		return fmt.Errorf(`"mode" is %q: it is %q or %q`, b.Mode, ModeModule, ModeGOPATH)
	}
	for _, v := range b.Variants {
		if v != Stock && v != Ours && b.Without[v] == nil {
			return fmt.Errorf(`"variants" has %q: they are %q, %q and those of "without"`, v, Stock, Ours)
		}
	}
	if slices.Contains(b.Variants, Ours) && b.Release == "" {
		return fmt.Errorf(`"release" is empty, though there is a variant %q`, Ours)
	}
	if b.Series["toolchain"] == "" {
		return fmt.Errorf(`"series" has no "toolchain"`)
	}
	for n, bin := range b.Binaries {
		if !strings.HasPrefix(bin.Package, "./") && !bin.Own() {
			return fmt.Errorf(`binary %q: "package" is %q: it starts with "./" or %q`, n, bin.Package, ownModule)
		}
	}
	return nil
}

// Names lists the bases below root.
func Names(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "bases", "*", "base.json"))
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names, err
}

// HasVariant reports whether the base is built in variant, as an error a user
// can act on.
func (b *Base) HasVariant(variant string) error {
	if slices.Contains(b.Variants, variant) {
		return nil
	}
	return exit.Usagef("base %s has no variant %q: it has %s", b.Name, variant, strings.Join(b.Variants, ", "))
}

// SeriesOf returns the folders of the series of variant, in the order in
// which they are applied.
func (b *Base) SeriesOf(variant string) []string {
	dirs := []string{b.Series["toolchain"]}
	for _, name := range OwnSeries {
		if variant == Ours && b.Series[name] != "" {
			dirs = append(dirs, b.Series[name])
		}
	}
	return dirs
}

// OverlayOf returns the overlay folders of variant.
func (b *Base) OverlayOf(variant string) []Overlay {
	var out []Overlay
	for _, o := range b.Overlay {
		if variant == Ours || o.Series == "toolchain" {
			out = append(out, o)
		}
	}
	return out
}

// BinaryNames lists the base's binaries, or only the product's.
func (b *Base) BinaryNames(dropInOnly bool) []string {
	var names []string
	for n, bin := range b.Binaries {
		if bin.DropIn || !dropInOnly {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names
}

// VersionPackages lists the packages whose variables carry the version.
func (b *Base) VersionPackages() []string {
	if b.Mode == ModeGOPATH {
		return []string{b.Module + "/pkg/version"}
	}
	return []string{b.Module + "/pkg/version", "k8s.io/client-go/pkg/version"}
}

// Output is the folder of everything that is generated.
func (b *Base) Output() string { return filepath.Join(b.Root, "_output") }

// SrcDir is the materialised tree of variant. In GOPATH mode it is the part of
// a GOPATH that holds the module.
func (b *Base) SrcDir(variant string) string {
	d := filepath.Join(b.Output(), "src", b.Name, variant)
	if b.Mode == ModeGOPATH {
		d = filepath.Join(d, "src", filepath.FromSlash(b.Module))
	}
	return d
}

// BinDir is where the binaries of variant are put.
func (b *Base) BinDir(variant string) string {
	return filepath.Join(b.Output(), "bin", b.Name, variant)
}

// FindRoot walks up from dir to the repository's root: the folder that holds
// go.mod of module holdfast.
func FindRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if mod, err := os.ReadFile(filepath.Join(d, "go.mod")); err == nil && bytes.HasPrefix(mod, []byte("module holdfast\n")) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", exit.Usagef("%s is not inside a Holdfast checkout (no go.mod of module holdfast above it): run from one, or name it with --root", dir)
		}
	}
}

func rel(root, path string) string {
	if r, err := filepath.Rel(root, path); err == nil {
		return r
	}
	return path
}
