// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slugs reads slugs.json, the one table that says what belongs to a
// fix: its gates, patches, overlay files, labs and page, for each base that has
// it. Everything that asks "which files are this fix" asks here: the trees, the
// variants without a slug, the labs' gates, the repository's rules and README's
// table.
package slugs

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/strictjson"
)

// File is the table's name, at the repository's root.
const File = "slugs.json"

// Kind says what a slug is for.
type Kind string

// The kinds.
const (
	Fix       Kind = "fix"       // ends an incident; our own
	Backport  Kind = "backport"  // ends an incident as a later release of upstream does
	Security  Kind = "security"  // closes a known hole
	Toolchain Kind = "toolchain" // what today's Go needs to build and run the old code
	Version   Kind = "version"   // what the binary says it is
	Tool      Kind = "tool"      // a program beside the product: no patch, no overlay
	Planned   Kind = "planned"   // an incident that nothing here ends yet
)

// Series is the patch series in which slugs of this kind have their patches;
// empty for a kind that has none.
func (k Kind) Series() string {
	switch k {
	case Toolchain, Security:
		return string(k)
	case Tool, Planned:
		return ""
	}
	return "carry"
}

var kinds = []Kind{Fix, Backport, Security, Toolchain, Version, Tool, Planned}

// Table is slugs.json.
type Table struct {
	Slugs []*Slug `json:"slugs"`
	// Checks are labs that show no incident: they pass or fail.
	Checks []string `json:"checks,omitempty"`
}

// Slug is one fix, or one thing that is not a fix and yet changes the tree.
type Slug struct {
	Name string `json:"slug"`
	Kind Kind   `json:"kind"`
	// Components are the binaries, or the library, that it changes.
	Components []string `json:"components,omitempty"`
	// Incident is what an operator sees without it, in one line.
	Incident string `json:"incident,omitempty"`
	// Upstream is the folder below patches/upstream with the form in which it
	// could be sent; empty where the patch itself is that form, or nothing is.
	Upstream string `json:"upstream,omitempty"`
	// Forms are what it is made of, base by base.
	Forms []*Form `json:"forms,omitempty"`
}

// InProduct says whether ours differs from stock by the slug: one of the toolchain is in both, a
// tool in neither.
func (s *Slug) InProduct() bool { return slices.Contains([]Kind{Fix, Backport, Security}, s.Kind) }

// Form is what a slug is made of in the bases that it names.
type Form struct {
	Bases []string `json:"bases"`
	// Gates are its feature gates with their defaults.
	Gates map[string]bool `json:"gates,omitempty"`
	// TurnOn is what has to be set before it does anything, where that is no gate.
	TurnOn string `json:"turnOn,omitempty"`
	// Patches are file names in the base's series.
	Patches []string `json:"patches,omitempty"`
	// Overlay are files of ours by their paths in the tree. "*" stands for a
	// part of a name, a last element "**" for everything below a folder.
	Overlay []string `json:"overlay,omitempty"`
	// Labs show it. The value is the gates of this slug that the lab's variant
	// ours-gate-off switches off.
	Labs map[string][]string `json:"labs,omitempty"`
	// Page is the page for operators.
	Page string `json:"page,omitempty"`
	// Incident replaces the slug's own in these bases.
	Incident string `json:"incident,omitempty"`
	// Needs are slugs whose code this one's calls: a variant without one of them
	// is without this one too.
	Needs []string `json:"needs,omitempty"`
}

// AsleepMark stands behind what ours answered with a fix turned on that is not by default.
const AsleepMark = " †"

// Asleep is what an operator has to turn on before a form does anything: gates that are all
// off by default, or what TurnOn says. It is empty if the form acts by itself.
func (f *Form) Asleep() string {
	if f.TurnOn != "" || len(f.Gates) == 0 {
		return f.TurnOn
	}
	for _, on := range f.Gates {
		if on {
			return ""
		}
	}
	return "`" + strings.Join(slices.Sorted(maps.Keys(f.Gates)), "`, `") + "`"
}

var nameRE = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9.]+)*$`)

// Load reads the table below root.
func Load(root string) (*Table, error) {
	raw, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		return nil, exit.Preconditionf("the table of slugs: %v", err)
	}
	return Parse(raw)
}

// Parse reads a table and checks what can be seen in it alone.
func Parse(raw []byte) (*Table, error) {
	t := &Table{}
	if err := strictjson.Decode(raw, t); err != nil {
		return nil, exit.Preconditionf("%s: %v", File, err)
	}
	if err := t.validate(); err != nil {
		return nil, exit.Preconditionf("%s: %v", File, err)
	}
	return t, nil
}

func (t *Table) validate() error {
	for i, s := range t.Slugs {
		switch {
		case !nameRE.MatchString(s.Name):
			return fmt.Errorf("slug %q: a name is lower-case words joined by dashes", s.Name)
		case slices.ContainsFunc(t.Slugs[:i], func(o *Slug) bool { return o.Name == s.Name }):
			return fmt.Errorf("slug %s is listed twice", s.Name)
		case !slices.Contains(kinds, s.Kind):
			return fmt.Errorf("slug %s: \"kind\" is %q: it is one of %q", s.Name, s.Kind, kinds)
		case s.Kind == Planned && len(s.Forms) > 0:
			return fmt.Errorf("slug %s has \"forms\" and is still of kind %q", s.Name, Planned)
		case s.Kind == Tool && slices.ContainsFunc(s.Forms, func(f *Form) bool { return len(f.Patches)+len(f.Overlay)+len(f.Gates) > 0 }):
			return fmt.Errorf("slug %s is of kind %q and has patches, overlay or gates", s.Name, Tool)
		case s.Kind != Planned && len(s.Forms) == 0:
			return fmt.Errorf("slug %s has no \"forms\": only one of kind %q has none", s.Name, Planned)
		}
		if err := t.validateForms(s); err != nil {
			return fmt.Errorf("slug %s: %w", s.Name, err)
		}
	}
	for _, c := range t.Checks {
		if t.LabSlugs(c) != nil {
			return fmt.Errorf("lab %s is one of \"checks\" and of slug %s too", c, t.LabSlugs(c)[0])
		}
	}
	return nil
}

func (t *Table) validateForms(s *Slug) error {
	seen := map[string]bool{}
	for _, f := range s.Forms {
		if len(f.Bases) == 0 {
			return fmt.Errorf("a form names no \"bases\"")
		}
		for _, b := range f.Bases {
			if seen[b] {
				return fmt.Errorf("base %s has two forms", b)
			}
			seen[b] = true
			for _, n := range f.Needs {
				if o := t.Find(n); o == nil || o.Form(b) == nil {
					return fmt.Errorf("it needs %s, which is not a slug of base %s", n, b)
				}
			}
		}
		for lab, gates := range f.Labs {
			for _, g := range gates {
				if _, ok := f.Gates[g]; !ok {
					return fmt.Errorf("lab %s switches off %s, which is not among the form's gates", lab, g)
				}
			}
		}
		for _, p := range f.Overlay {
			if _, err := match(p, "x"); err != nil || path.Clean(p) != p || strings.HasPrefix(p, "/") {
				return fmt.Errorf("\"overlay\" has %q, which is not a pattern of paths in the tree", p)
			}
		}
	}
	return nil
}

// Find returns the slug of that name, or nil.
func (t *Table) Find(name string) *Slug {
	for _, s := range t.Slugs {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Form is what the slug is made of in a base, nil where the base does not have it.
func (s *Slug) Form(base string) *Form {
	for _, f := range s.Forms {
		if slices.Contains(f.Bases, base) {
			return f
		}
	}
	return nil
}

// Of lists the slugs that a base has, in the table's order.
func (t *Table) Of(base string) []*Slug {
	var out []*Slug
	for _, s := range t.Slugs {
		if s.Form(base) != nil {
			out = append(out, s)
		}
	}
	return out
}

// Names are the names of slugs.
func Names(list []*Slug) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Name)
	}
	return out
}

// OfPatch is the slug that a patch file of a base belongs to, nil for none.
func (t *Table) OfPatch(base, name string) *Slug {
	for _, s := range t.Slugs {
		if f := s.Form(base); f != nil && slices.Contains(f.Patches, name) {
			return s
		}
	}
	return nil
}

// OfFile is the slug that a file of ours in the tree of a base belongs to, nil
// for none. A path that several slugs claim belongs to the first; a rule of the
// repository refuses that.
func (t *Table) OfFile(base, file string) *Slug {
	for _, s := range t.Slugs {
		if f := s.Form(base); f != nil && f.Has(file) {
			return s
		}
	}
	return nil
}

// Claims lists the slugs that have a file of ours in any base.
func (t *Table) Claims(file string) []string {
	var out []string
	for _, s := range t.Slugs {
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

// Minus is the whole set that goes when the named slugs go from a base: they and
// every slug that needs one of them, sorted.
func (t *Table) Minus(base string, names []string) ([]string, error) {
	gone := map[string]bool{}
	for _, n := range names {
		if s := t.Find(n); s == nil || s.Form(base) == nil {
			return nil, exit.Usagef("base %s has no slug %q: it has %s", base, n, strings.Join(Names(t.Of(base)), ", "))
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
	for _, s := range t.Slugs {
		for _, f := range s.Forms {
			for lab, gates := range f.Labs {
				all := append(out[lab], gates...)
				slices.Sort(all)
				out[lab] = slices.Compact(all)
			}
		}
	}
	for _, c := range t.Checks {
		out[c] = nil
	}
	return out
}

// LabSlugs lists the slugs that a lab shows.
func (t *Table) LabSlugs(lab string) []string {
	var out []string
	for _, s := range t.Slugs {
		if slices.ContainsFunc(s.Forms, func(f *Form) bool { _, ok := f.Labs[lab]; return ok }) {
			out = append(out, s.Name)
		}
	}
	return out
}
