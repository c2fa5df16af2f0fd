// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fixes

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
	"holdfast/tools/build/strictjson"
)

var (
	nameRE  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9.]+)*$`)
	baseRE  = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)
	patchRE = regexp.MustCompile(`^\d{4}\.patch$`)
)

// Load reads the folders below root.
func Load(root string) (*Table, error) {
	t := &Table{}
	for _, dir := range []string{Dir, ToolchainDir} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil && !(os.IsNotExist(err) && dir == ToolchainDir) {
			return nil, exit.Preconditionf("the folders of fixes: %v", err)
		}
		for _, e := range entries {
			if !e.IsDir() || dir+"/"+e.Name() == ToolchainDir {
				continue
			}
			s, err := load(root, dir, e.Name())
			if err != nil {
				return nil, err
			}
			t.Fixes = append(t.Fixes, s)
		}
	}
	t.sort()
	return t, t.Validate()
}

// load reads one folder.
func load(root, dir, name string) (*Fix, error) {
	s := &Fix{Name: name}
	file := path.Join(dir, name, File)
	c := &Content{}
	raw, err := os.ReadFile(filepath.Join(root, file))
	switch {
	case os.IsNotExist(err) && dir == ToolchainDir:
		// A patch of the toolchain may have nothing to add to its message.
	case err != nil:
		return nil, exit.Preconditionf("a folder of %s is a fix: %v", Dir, err)
	default:
		if err := strictjson.Decode(raw, c); err != nil {
			return nil, exit.Preconditionf("%s: %v", file, err)
		}
	}
	if dir == ToolchainDir {
		if c.Kind != "" {
			return nil, exit.Preconditionf("%s: \"kind\" is %q: a folder of %s has none", file, c.Kind, ToolchainDir)
		}
		c.Kind = Toolchain
	} else if c.Kind == Toolchain || !slices.Contains(kinds, c.Kind) {
		return nil, exit.Preconditionf("%s: \"kind\" is %q: it is one of %q", file, c.Kind, kinds[:len(kinds)-1])
	}
	s.Kind, s.Components, s.Incident, s.Report = c.Kind, c.Components, c.Incident, c.Report
	s.Vulnerabilities, s.Differences = c.Vulnerabilities, c.Differences
	if _, err := os.Stat(filepath.Join(root, dir, name, UpstreamDir)); err == nil {
		s.Upstream = path.Join(dir, name, UpstreamDir)
	}
	return s, s.loadForms(root, c)
}

// loadForms makes the forms of what fix.json says and the folders of bases that are there.
func (s *Fix) loadForms(root string, c *Content) error {
	entries, err := os.ReadDir(filepath.Join(root, s.Folder()))
	if err != nil {
		return err
	}
	bases := slices.Collect(maps.Keys(c.Bases))
	for _, e := range entries {
		if e.IsDir() && baseRE.MatchString(e.Name()) && !slices.Contains(bases, e.Name()) {
			bases = append(bases, e.Name())
		}
	}
	slices.Sort(bases)
	for _, b := range bases {
		f := &Form{Base: b, Spec: c.form(b)}
		home := b
		if f.PatchesOf != "" {
			home = f.PatchesOf
		}
		if f.Patches, err = patchesIn(root, path.Join(s.Folder(), home)); err != nil {
			return err
		}
		for _, page := range []string{path.Join(s.Folder(), b, PageFile), path.Join(s.Folder(), PageFile)} {
			if _, err := os.Stat(filepath.Join(root, page)); err == nil && f.Page == "" {
				f.Page = page
			}
		}
		s.Forms = append(s.Forms, f)
	}
	return nil
}

// form is what fix.json says of the form in a base.
func (c *Content) form(base string) Spec {
	f, own := c.Bases[base]
	if !own {
		f = c.Spec
		f.Incident = ""
		return f
	}
	if f.Gates == nil {
		f.Gates = c.Gates
	}
	if f.Overlay == nil {
		f.Overlay = c.Overlay
	}
	if f.Needs == nil {
		f.Needs = c.Needs
	}
	f.TurnOn = cmp.Or(f.TurnOn, c.TurnOn)
	return f
}

// patchesIn are the patches of a folder of one base, which holds nothing else but a page.
func patchesIn(root, dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Name() == PageFile {
			continue
		}
		if e.IsDir() || !patchRE.MatchString(e.Name()) {
			return nil, exit.Preconditionf("%s/%s: a folder of a base has patches NNNN.patch and perhaps a %s", dir, e.Name(), PageFile)
		}
		out = append(out, path.Join(dir, e.Name()))
	}
	return out, nil
}

// sort orders the fixes by kind, then by their first patch, then by name.
func (t *Table) sort() {
	first := func(s *Fix) string {
		least := "~" // behind all numbers
		for _, f := range s.Forms {
			for _, p := range f.Patches {
				least = min(least, path.Base(p))
			}
		}
		return least
	}
	slices.SortStableFunc(t.Fixes, func(a, b *Fix) int {
		return cmp.Or(cmp.Compare(a.Kind.rank(), b.Kind.rank()), strings.Compare(first(a), first(b)), strings.Compare(a.Name, b.Name))
	})
}

// Validate checks what can be seen in the table alone.
func (t *Table) Validate() error {
	for i, s := range t.Fixes {
		switch {
		case !nameRE.MatchString(s.Name):
			return exit.Preconditionf("%s: fix %q: a name is lower-case words joined by dashes", s.File(), s.Name)
		case slices.ContainsFunc(t.Fixes[:i], func(o *Fix) bool { return o.Name == s.Name }):
			return exit.Preconditionf("%s: there is another fix %s", s.File(), s.Name)
		case s.Kind == Planned && len(s.Forms) > 0:
			return exit.Preconditionf("%s: a base has the fix, and it is still of kind %q", s.File(), Planned)
		case s.Kind == Tool && slices.ContainsFunc(s.Forms, func(f *Form) bool { return len(f.Patches)+len(f.Overlay)+len(f.Gates) > 0 }):
			return exit.Preconditionf("%s: it is of kind %q and has patches, overlay or gates", s.File(), Tool)
		case s.Kind != Planned && len(s.Forms) == 0:
			return exit.Preconditionf("%s: there is no folder of a base, and \"bases\" names none: only a fix of kind %q has none", s.File(), Planned)
		}
		for _, f := range s.Forms {
			if err := t.validateForm(f); err != nil {
				return exit.Preconditionf("%s: base %s: %v", s.File(), f.Base, err)
			}
		}
	}
	return t.validateNumbers()
}

func (t *Table) validateForm(f *Form) error {
	for _, n := range f.Needs {
		if o := t.Find(n); o == nil || o.Form(f.Base) == nil {
			return fmt.Errorf("it needs %s, which is not a fix of this base", n)
		}
	}
	if f.PatchesOf != "" && len(f.Patches) == 0 {
		return fmt.Errorf("\"patchesOf\" is %s, and the fix has no patches for that", f.PatchesOf)
	}
	for g, gate := range f.Gates {
		if !slices.Contains([]string{"", "Alpha", "Beta", "GA"}, gate.Stage) {
			return fmt.Errorf("gate %s: \"stage\" is %q: it is Alpha, Beta or GA", g, gate.Stage)
		}
	}
	for lab, gates := range f.Labs {
		for _, g := range gates {
			if _, ok := f.Gates[g]; !ok {
				return fmt.Errorf("lab %s switches off %s, which is not among the gates", lab, g)
			}
		}
	}
	for _, p := range f.Overlay {
		if _, err := match(p, "x"); err != nil || path.Clean(p) != p || strings.HasPrefix(p, "/") {
			return fmt.Errorf("\"overlay\" has %q, which is not a pattern of paths in the tree", p)
		}
	}
	return nil
}

// lastOfToolchain is the highest number of a toolchain patch: those are applied before all others,
// as stock has them alone.
const lastOfToolchain = "0099.patch"

// validateNumbers: the numbers of a base's patches are their order, so each is there once.
func (t *Table) validateNumbers() error {
	seen := map[string]string{}
	for _, s := range t.Fixes {
		for _, f := range s.Forms {
			for _, p := range f.Patches {
				if early := path.Base(p) <= lastOfToolchain; early != (s.Kind == Toolchain) {
					return exit.Preconditionf("%s: numbers up to %s are the toolchain's, and only they are", p, strings.TrimSuffix(lastOfToolchain, ".patch"))
				}
				key := f.Base + "/" + path.Base(p)
				if o := seen[key]; o != "" {
					return exit.Preconditionf("%s and %s have one number in base %s: take another one", o, p, f.Base)
				}
				seen[key] = p
			}
		}
	}
	return nil
}
