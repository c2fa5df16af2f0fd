// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fixes reads the folders of patches/: each has all that is known about one fix (fix.json,
// page, patches base by base, the form for upstream). Everything that asks "which files are this
// fix" asks here: the trees, the variants without a fix, the labs' gates, the repository's rules and
// README's table.
package fixes

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
)

// The places of a fix, relative to the repository's root.
const (
	Dir          = "patches"           // one folder a fix
	ToolchainDir = "patches/toolchain" // one folder a fix of kind Toolchain
	File         = "fix.json"          // in the fix's folder
	PageFile     = "README.md"         // there, or in the folder of a base for a page of its own
	UpstreamDir  = "upstream"          // the form in which it could be sent
)

// Kind says what a fix is for.
type Kind string

// The kinds.
const (
	Own       Kind = "fix"       // ends an incident; our own
	Backport  Kind = "backport"  // ends an incident as a later release of upstream does
	Security  Kind = "security"  // closes a known hole
	Toolchain Kind = "toolchain" // what today's Go needs to build and run the old code
	Version   Kind = "version"   // what the binary says it is
	Tool      Kind = "tool"      // a program beside the product: no patch, no overlay
	Planned   Kind = "planned"   // an incident that nothing here ends yet
)

// kinds in the order in which tables list them. Those that end incidents, the first ranked of them,
// stand together.
var kinds = []Kind{Own, Backport, Tool, Planned, Security, Version, Toolchain}

const ranked = 4

// rank is the place of a kind's fixes in tables.
func (k Kind) rank() int { return max(slices.Index(kinds, k), ranked-1) }

// Table has all fixes, in the order of tables.
type Table struct {
	Fixes []*Fix
}

// Fix is one fix, or one thing that is not a fix and yet changes the tree.
type Fix struct {
	Name string
	Kind Kind
	// Components are the binaries, or the library, that it changes.
	Components []string
	// Incident is what an operator sees without it, in one line.
	Incident string
	// Report: operators have told the incident in public, so make test shows it on stock too.
	Report bool
	// Upstream is the folder with the form in which it could be sent; empty where the patch
	// itself is that form, or nothing is.
	Upstream string
	// Forms are what it is made of, one for each base that has it, sorted by base.
	Forms []*Form
	// Vulnerabilities that it closes (package security) and Differences that show from outside
	// and do not follow from its gates and metrics (package dropin).
	Vulnerabilities, Differences []json.RawMessage
}

// InProduct says whether ours differs from stock by the fix: one of the toolchain is in both, a
// tool in neither.
func (s *Fix) InProduct() bool { return slices.Contains([]Kind{Own, Backport, Security}, s.Kind) }

// Folder is the fix's, relative to the root.
func (s *Fix) Folder() string {
	if s.Kind == Toolchain {
		return ToolchainDir + "/" + s.Name
	}
	return Dir + "/" + s.Name
}

// File is its fix.json, for messages.
func (s *Fix) File() string { return s.Folder() + "/" + File }

// Form is what a fix is made of in one base.
type Form struct {
	Base string
	Spec
	// Patches are the files, relative to the root, sorted by number.
	Patches []string
	// Page is the page for operators, relative to the root; empty if there is none.
	Page string
}

// Spec is what fix.json says of a form.
type Spec struct {
	// Incident replaces the fix's own in this base.
	Incident string `json:"incident,omitempty"`
	// Gates are its feature gates.
	Gates map[string]Gate `json:"gates,omitempty"`
	// TurnOn is what has to be set before it does anything, where that is no gate.
	TurnOn string `json:"turnOn,omitempty"`
	// PatchesOf is the base whose patches this base takes, where it has none of its own.
	PatchesOf string `json:"patchesOf,omitempty"`
	// Overlay are files of ours by their paths in the tree. "*" stands for a
	// part of a name, a last element "**" for everything below a folder.
	Overlay []string `json:"overlay,omitempty"`
	// Labs show it. The value is the gates of this fix that the lab's variant
	// ours-gate-off switches off.
	Labs map[string][]string `json:"labs,omitempty"`
	// Needs are fixes whose code this one's calls: a variant without one of them
	// is without this one too.
	Needs []string `json:"needs,omitempty"`
}

// Gate is a feature gate.
type Gate struct {
	Default bool `json:"default"`
	// Stage is Alpha, Beta or GA; empty: Beta if it is on by default, else Alpha.
	Stage string `json:"stage,omitempty"`
	// About says what it does, and what off does; the gate's name stands before it. The code that
	// registers the gate is made of it. Without it code of the overlay registers the gate.
	About string `json:"about,omitempty"`
}

// Defaults are the gates with their defaults.
func (f *Form) Defaults() map[string]bool {
	out := map[string]bool{}
	for g, v := range f.Gates {
		out[g] = v.Default
	}
	return out
}

// Content is a fix.json. Its own fields of a form hold for each base that has a folder of patches
// and is not in Bases.
type Content struct {
	Kind       Kind     `json:"kind,omitempty"`
	Components []string `json:"components,omitempty"`
	Report     bool     `json:"report,omitempty"`
	Spec
	// Bases have a form of their own. Gates, TurnOn, Overlay and Needs that it does not name are
	// those above; an empty list, [], says that there are none.
	Bases           map[string]Spec   `json:"bases,omitempty"`
	Vulnerabilities []json.RawMessage `json:"vulnerabilities,omitempty"`
	Differences     []json.RawMessage `json:"differences,omitempty"`
}

// AsleepMark stands behind what ours answered with a fix turned on that is not by default.
const AsleepMark = " †"

// Asleep is what an operator has to turn on before a form does anything: gates that are all
// off by default, or what TurnOn says. It is empty if the form acts by itself.
func (f *Form) Asleep() string {
	if f.TurnOn != "" || len(f.Gates) == 0 {
		return f.TurnOn
	}
	for _, g := range f.Gates {
		if g.Default {
			return ""
		}
	}
	return "`" + strings.Join(slices.Sorted(maps.Keys(f.Gates)), "`, `") + "`"
}

// Find returns the fix of that name, or nil.
func (t *Table) Find(name string) *Fix {
	for _, s := range t.Fixes {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Form is what the fix is made of in a base, nil where the base does not have it.
func (s *Fix) Form(base string) *Form {
	for _, f := range s.Forms {
		if f.Base == base {
			return f
		}
	}
	return nil
}

// Of lists the fixes that a base has, in the table's order.
func (t *Table) Of(base string) []*Fix {
	var out []*Fix
	for _, s := range t.Fixes {
		if s.Form(base) != nil {
			out = append(out, s)
		}
	}
	return out
}

// Names are the names of fixes.
func Names(list []*Fix) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Name)
	}
	return out
}

// Patches are the files of a base, relative to the root, in their order.
func (t *Table) Patches(base string) []string {
	var out []string
	for _, s := range t.Of(base) {
		out = append(out, s.Form(base).Patches...)
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return out
}

// OfPatch is the fix that a patch file, relative to the root, belongs to, nil for none.
func (t *Table) OfPatch(file string) *Fix {
	for _, s := range t.Fixes {
		if strings.HasPrefix(file, s.Folder()+"/") {
			return s
		}
	}
	return nil
}

// OfFile is the fix that a file of ours in the tree of a base belongs to, nil
// for none. A path that several fixes claim belongs to the first; a rule of the
// repository refuses that.
func (t *Table) OfFile(base, file string) *Fix {
	for _, s := range t.Fixes {
		if f := s.Form(base); f != nil && f.Has(file) {
			return s
		}
	}
	return nil
}

// Claims lists the fixes that have a file of ours in any base.
func (t *Table) Claims(file string) []string {
	var out []string
	for _, s := range t.Fixes {
		if slices.ContainsFunc(s.Forms, func(f *Form) bool { return f.Has(file) }) {
			out = append(out, s.Name)
		}
	}
	return out
}

// Has reports whether one of the form's patterns is a file's path in the tree.
func (f *Form) Has(file string) bool {
	return slices.ContainsFunc(f.Overlay, func(p string) bool { ok, _ := match(p, file); return ok })
}

// match is path.Match with a last element "**" for everything below a folder.
func match(pattern, file string) (bool, error) {
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return strings.HasPrefix(file, dir+"/"), nil
	}
	return path.Match(pattern, file)
}

// Match reports whether pattern is a file's path in the tree.
func Match(pattern, file string) bool { ok, _ := match(pattern, file); return ok }

// Minus is the whole set that goes when the named fixes go from a base: they and
// every fix that needs one of them, sorted.
func (t *Table) Minus(base string, names []string) ([]string, error) {
	gone := map[string]bool{}
	for _, n := range names {
		if s := t.Find(n); s == nil || s.Form(base) == nil {
			return nil, exit.Usagef("base %s has no fix %q: it has %s", base, n, strings.Join(Names(t.Of(base)), ", "))
		}
		gone[n] = true
	}
	for before := -1; before != len(gone); {
		before = len(gone)
		for _, s := range t.Of(base) {
			if slices.ContainsFunc(s.Form(base).Needs, func(n string) bool { return gone[n] }) {
				gone[s.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(gone)), nil
}

// Labs maps each lab of the table to the gates that its variant ours-gate-off
// switches off, sorted.
func (t *Table) Labs() map[string][]string {
	out := map[string][]string{}
	for _, s := range t.Fixes {
		for _, f := range s.Forms {
			for lab, gates := range f.Labs {
				all := append(out[lab], gates...)
				slices.Sort(all)
				out[lab] = slices.Compact(all)
			}
		}
	}
	return out
}

// LabFixes lists the fixes that a lab shows.
func (t *Table) LabFixes(lab string) []string {
	var out []string
	for _, s := range t.Fixes {
		if slices.ContainsFunc(s.Forms, func(f *Form) bool { _, ok := f.Labs[lab]; return ok }) {
			out = append(out, s.Name)
		}
	}
	return out
}
