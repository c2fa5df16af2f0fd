// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package base reads bases/<version>/base.json: what one upstream release is
// made of (module, sum, forks, patch series, variants) and which binaries are
// built from it. Which patches and overlay files are whose stands in the fixes.
package base

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/strictjson"
)

// The ways a base is built.
const (
	ModeModule = "module" // from the root go.mod's pins
	ModeGOPATH = "gopath" // with the dependencies inside the upstream module (1.2)
)

// Minor is 9 for the base "v1.9.11", and 0 for what is no name of a base.
func Minor(name string) (n int) {
	_, _ = fmt.Sscanf(name, "v1.%d", &n)
	return n
}

// Base is one base.json. Paths in it are relative to the repository's root,
// except where the field says otherwise.
type Base struct {
	Name    string `json:"base"`    // name of the folder below bases/, e.g. "v1.9.11"
	Module  string `json:"module"`  // upstream module path
	Version string `json:"version"` // upstream module version
	Sum     string `json:"sum"`     // "h1:" sum of the module's zip
	Mode    string `json:"mode"`    // ModeModule or ModeGOPATH
	// Default marks the one base that commands work on when none is named.
	Default bool `json:"default,omitempty"`
	// Long: of this base make test runs the unit tests and one lab, and leaves the rest to make test-all.
	Long bool `json:"long,omitempty"`
	// Pins is the folder of the go.mod and go.sum with the third-party versions;
	// empty: the root's.
	Pins string `json:"pins,omitempty"`

	// Release is what `--version` of our variant prints, e.g.
	// "v1.9.11+holdfast.1"; empty for a base that has no variant of ours.
	Release string `json:"release,omitempty"`
	// Unreleased: Holdfast has made no release of the base yet, and Release is the one to come.
	Unreleased bool `json:"unreleased,omitempty"`
	// GitCommit and BuildDate (RFC 3339) go into stock binaries: those of
	// upstream's release as far as they are known.
	GitCommit string `json:"gitCommit,omitempty"`
	BuildDate string `json:"buildDate,omitempty"`

	Variants map[string]VariantSpec `json:"variants"`
	Forks    []Fork                 `json:"forks,omitempty"`
	// Lang is given to the compiler as -lang for LangPackages: in GOPATH mode
	// no go.mod says which language the source was written in.
	Lang         string   `json:"lang,omitempty"`
	LangPackages []string `json:"langPackages,omitempty"`
	// Renames are applied to upstream's files before any patch.
	Renames []Rename `json:"renames,omitempty"`
	// Require overrides or adds pins to those of Pins.
	Require  map[string]string `json:"require,omitempty"`
	OpenAPI  *OpenAPI          `json:"openapi,omitempty"`
	Binaries map[string]Binary `json:"binaries"`

	Root  string       `json:"-"` // repository root, absolute
	Fixes *fixes.Table `json:"-"` // of all bases
}

const ownModule = "holdfast/"

// Own says whether the binary is a lab's own program, in the root module.
func (bin Binary) Own() bool { return strings.HasPrefix(bin.Package, ownModule) }

// ThirdParty says whether the binary is a program of a module that the base pins.
func (bin Binary) ThirdParty() bool {
	first, _, _ := strings.Cut(bin.Package, "/")
	return !strings.HasPrefix(first, ".") && strings.Contains(first, ".")
}

// ImportPath is where the go command finds the binary's main package.
func (b *Base) ImportPath(bin Binary) string {
	if bin.Own() || bin.ThirdParty() {
		return bin.Package
	}
	return path.Join(b.Module, bin.Package)
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

// OpenAPI says which generator, of the tree or of a pinned module, writes pkg/generated/openapi.
type OpenAPI struct {
	Generator string `json:"generator"` // package path of the generator
	// Violations is the tree's list of types that break the rules for APIs. The generator reports
	// them too, and its report must be that list; empty: the generator has no such report.
	Violations string `json:"violations,omitempty"`
}

// Assets says which pinned generator writes a Go file out of data files of the
// tree. Upstream's module does not have the file.
type Assets struct {
	Generator string   `json:"generator"` // package path of the generator
	File      string   `json:"file"`      // relative to the tree; its folder is the package
	From      []string `json:"from"`      // folders, relative to the tree
	Ignore    []string `json:"ignore,omitempty"`
}

// Binary is one program of the base.
type Binary struct {
	// Package is relative to the module, e.g. "./cmd/kubelet", or a lab's own
	// program in the root module, e.g. "holdfast/hack/tests/…", linked with the tree,
	// or one of a pinned module, e.g. "github.com/…".
	Package string `json:"package"`
	// Test: the program is the package's tests (go test -c).
	Test bool `json:"test,omitempty"`
	// Assets is the generated file with data that the program needs.
	Assets *Assets `json:"assets,omitempty"`
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
	// DropIn: part of the product, built by `make`.
	DropIn bool `json:"dropIn,omitempty"`
	// Optional: part of the product, built when it is named. What is neither this
	// nor DropIn is for labs.
	Optional bool `json:"optional,omitempty"`
}

// Load reads bases/<name>/base.json below root.
func Load(root, name string) (*Base, error) {
	return load(root, name, func() (*fixes.Table, error) { return fixes.Load(root) })
}

// All reads each base below root, and the fixes once for all of them.
func All(root string) ([]*Base, error) {
	names, err := Names(root)
	if err != nil {
		return nil, err
	}
	table := sync.OnceValues(func() (*fixes.Table, error) { return fixes.Load(root) })
	var out []*Base
	for _, n := range names {
		b, err := load(root, n, table)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func load(root, name string, table func() (*fixes.Table, error)) (*Base, error) {
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
	if err := strictjson.Decode(raw, b); err != nil {
		return nil, exit.Preconditionf("%s: %v", rel(root, file), err)
	}
	if b.Fixes, err = table(); err != nil {
		return nil, err
	}
	if err := b.validate(name); err != nil {
		return nil, exit.Preconditionf("%s: %v", rel(root, file), err)
	}
	return b, nil
}

// RecordFile is the record of the last full run of the labs, below the repository's root: what the
// labs' own commit leaves out, and package outcomes reads.
const RecordFile = "tools/labs/outcomes.json"

// LoadDefault reads the base whose base.json says that it is the default.
func LoadDefault(root string) (*Base, error) {
	all, err := All(root)
	if err != nil {
		return nil, err
	}
	var found []string
	var b *Base
	for _, one := range all {
		if one.Default {
			found, b = append(found, one.Name), one
		}
	}
	if len(found) != 1 {
		return nil, exit.Preconditionf("bases/*/base.json: %q say \"default\": true; exactly one of them must", found)
	}
	return b, nil
}

// Default is the name of that base.
func Default(root string) (string, error) {
	b, err := LoadDefault(root)
	if err != nil {
		return "", err
	}
	return b.Name, nil
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
		return fmt.Errorf(`"sum" is %q: it must be the module's "h1:" sum`, b.Sum)
	}
	if b.Mode != ModeModule && b.Mode != ModeGOPATH {
		return fmt.Errorf(`"mode" is %q: use %q or %q`, b.Mode, ModeModule, ModeGOPATH)
	}
	for name, v := range b.Variants {
		if name != Variant(name).Name() || strings.Contains(name, "-") {
			return fmt.Errorf(`"variants" has %q: a name is one word`, name)
		}
		if _, err := b.MinusOf(Variant(name)); err != nil {
			return fmt.Errorf(`variant %q: "minus": %w`, name, err)
		}
		if _, ok := b.Binaries[v.Component]; v.Component != "" && !ok {
			return fmt.Errorf(`variant %q: "component" is %q, which is no binary of the base`, name, v.Component)
		}
	}
	if _, ok := b.Variants[string(Ours)]; ok && b.Release == "" {
		return fmt.Errorf(`"release" is empty, though there is a variant %q`, Ours)
	}
	for n, bin := range b.Binaries {
		if bin.DropIn && bin.Optional {
			return fmt.Errorf(`binary %q is "dropIn" and "optional": it is one of them`, n)
		}
		if !strings.HasPrefix(bin.Package, "./") && !bin.Own() && !bin.ThirdParty() {
			return fmt.Errorf(`binary %q: "package" is %q: it starts with "./" or %q, or is a path such as "github.com/…"`, n, bin.Package, ownModule)
		}
		if a := bin.Assets; a != nil && (a.Generator == "" || a.File == "" || len(a.From) == 0) {
			return fmt.Errorf(`binary %q: "assets" has an empty "generator", "file" or "from"`, n)
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

// OptionalNames lists the binaries of the product that are built when they are named.
func (b *Base) OptionalNames() []string {
	var names []string
	for n, bin := range b.Binaries {
		if bin.Optional {
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
func (b *Base) SrcDir(v Variant) string {
	d := filepath.Join(b.Output(), "src", b.Name, v.Dir())
	if b.Mode == ModeGOPATH {
		d = filepath.Join(d, "src", filepath.FromSlash(b.Module))
	}
	return d
}

// BinDir is where the binaries of variant are put.
func (b *Base) BinDir(v Variant) string {
	return filepath.Join(b.Output(), "bin", b.Name, v.Dir())
}

// OverlayDirs are the folders, relative to the root, that hold the overlay at
// the tree's paths: the base's own and the one that the bases share. A file of
// the base's own goes before a shared one of the same path.
func (b *Base) OverlayDirs() []string { return []string{"bases/" + b.Name + "/overlay", "."} }

// SharedOverlay are the top folders of the shared overlay.
var SharedOverlay = []string{"pkg", "staging"}

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
