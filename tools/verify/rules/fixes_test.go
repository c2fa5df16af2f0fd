// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/labs"
)

// fixRepo is the repository with its table of fixes: what the rules about fixes look at.
type fixRepo struct {
	*repo
	table *fixes.Table
	bases map[string]*base.Base
	// folders are those below tools/labs/ of the labs, by their names.
	folders map[string]string
}

// TestFixes: the folders of the fixes and the repository say the same.
func TestFixes(t *testing.T) {
	r := checkout(t)
	table, all, _ := r.labs(t)
	h := &fixRepo{repo: r, table: table, bases: map[string]*base.Base{}, folders: map[string]string{}}
	for _, l := range all {
		h.folders[l.Name] = l.Path()
	}
	for _, b := range bases(t, r.root) {
		h.bases[b.Name] = b
	}
	report(t, h.overlayFaults())
	report(t, h.nameFaults())
	report(t, h.metricFaults())
	report(t, h.ladderFaults())
	report(t, h.formFaults())
	report(t, h.folderFaults())
}

// TestFolders: a lab's code is in the folder that has its page. The function that makes its steps
// tells its file.
func TestFolders(t *testing.T) {
	for _, l := range labs.All() {
		steps := reflect.ValueOf(l.Steps).Pointer()
		file, _ := runtime.FuncForPC(steps).FileLine(steps)
		if want := labFolders + "/" + l.Path(); !strings.HasSuffix(path.Dir(file), "/"+want) {
			t.Errorf("lab %s: its code is in %s, its folder is %s (Lab.Folder): they are one folder", l.Name, file, want)
		}
	}
}

// overlayFiles are the files of ours for a base, by their paths in the tree.
func (h *fixRepo) overlayFiles(b string) map[string]string {
	out := map[string]string{}
	own := "bases/" + b + "/overlay/"
	for _, p := range h.paths(func(string) bool { return true }) {
		top, _, _ := strings.Cut(p, "/")
		if slices.Contains(base.SharedOverlay, top) && out[p] == "" {
			out[p] = p
		}
	}
	for _, p := range h.paths(func(p string) bool { return strings.HasPrefix(p, own) && p != own+"go.mod" }) {
		out[strings.TrimPrefix(p, own)] = p
	}
	return out
}

// overlayFaults: each file of ours is in one fix of a base, and each pattern
// stands for a file.
func (h *fixRepo) overlayFaults() []string {
	var bad []string
	said := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(h.bases)) {
		files := h.overlayFiles(name)
		for _, f := range slices.Sorted(maps.Keys(files)) {
			var of []string
			for _, s := range h.table.Of(name) {
				if s.Form(name).Has(f) {
					of = append(of, s.Name)
				}
			}
			shared := files[f] == f
			switch {
			case len(of) > 1:
				bad = append(bad, fmt.Sprintf("%s belongs to the fixes %s of base %s: make their \"overlay\" narrower", files[f], strings.Join(of, " and "), name))
			case len(of) == 0 && (!shared || len(h.table.Claims(f)) == 0) && !said[files[f]]:
				said[files[f]] = true
				bad = append(bad, fmt.Sprintf("%s is in no fix: add it to \"overlay\" in the %s of one", files[f], fixes.File))
			}
		}
		for _, s := range h.table.Of(name) {
			for _, p := range s.Form(name).Overlay {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(f string) bool { return fixes.Match(p, f) }) {
					bad = append(bad, fmt.Sprintf("%s: \"overlay\" has %s, and base %s has no such file", s.File(), p, name))
				}
			}
		}
	}
	return bad
}

// oldNames are overlay files from before the rule of names that cannot be
// renamed: their names are in the product's binaries.
var oldNames = []string{"pkg/features/features.go"}

// nameFaults: a file of ours beside upstream's is named holdfast_<fix>.go, or
// by the fix's first two words; without "holdfast_" if the base is older. A
// package of our own is claimed as a whole folder, and has any names.
func (h *fixRepo) nameFaults() []string {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(h.bases)) {
		for tree, file := range h.overlayFiles(name) {
			s := h.table.OfFile(name, tree)
			if s == nil || !strings.HasSuffix(tree, ".go") || slices.Contains(oldNames, tree) ||
				slices.ContainsFunc(s.Form(name).Overlay, func(p string) bool { return strings.HasSuffix(p, "/**") && fixes.Match(p, tree) }) {
				continue
			}
			words := strings.Split(s.Name, "-")
			want := strings.Join(words[:min(2, len(words))], "_")
			stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(tree), ".go"), "_test")
			stem = strings.TrimPrefix(stem, "holdfast_")
			if stem != want && !strings.HasPrefix(stem, want+"_") && !(stem == "go14" || stem == "features") {
				bad = append(bad, fmt.Sprintf("%s belongs to the fix %s: name it holdfast_%s….go (patches/README.md)", file, s.Name, want))
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// formFaults: the gates that code of the overlay registers are those of fix.json without "about", the page says their defaults, and what the fix names is there.
func (h *fixRepo) formFaults() []string {
	var bad []string
	for _, s := range h.table.Fixes {
		say := func(format string, args ...any) { bad = append(bad, s.File()+": "+fmt.Sprintf(format, args...)) }
		if s.Upstream != "" && h.files[s.Upstream+"/README.md"] == nil {
			say("there is no %s/README.md", s.Upstream)
		}
		if s.Incident == "" && (s.Kind == fixes.Planned || s.Kind == fixes.Own && len(s.Forms) > 0 && len(s.Forms[0].Gates) == 0) {
			say("it has no \"incident\"")
		}
		for _, f := range s.Forms {
			if h.bases[f.Base] == nil {
				say("there is no base %s", f.Base)
				continue
			}
			var own []string
			for tree, file := range h.overlayFiles(f.Base) {
				if f.Has(tree) {
					own = append(own, file)
				}
			}
			want := map[string]bool{}
			for name, g := range f.Gates {
				if g.About == "" {
					want[name] = g.Default
				}
			}
			if got := gatesOf(h.repo, own); !maps.Equal(got, want) {
				say("its overlay registers the gates %v in base %s, want %v", got, f.Base, want)
			}
			if s.Kind == fixes.Toolchain {
				continue
			}
			page := string(h.files[f.Page])
			if page == "" {
				say("there is no page %s/%s", s.Folder(), fixes.PageFile)
			}
			if f.Page == path.Join(s.Folder(), fixes.PageFile) && !inOrder(page, sections) {
				say("%s has not the sections %s, in this order", f.Page, strings.Join(sections, ", "))
			}
			on := f.Defaults()
			for _, g := range slices.Sorted(maps.Keys(on)) {
				want := map[bool]string{true: "on by default", false: "off by default"}[on[g]]
				if !says(page, "`"+g+"`", want) && !strings.Contains(page, fmt.Sprintf("| `%s` | %v |", g, on[g])) {
					say("%s does not say that the gate `%s` is %s", f.Page, g, want)
				}
			}
		}
	}
	return bad
}

// sections are those of the page of a fix; others may come between them.
var sections = []string{"What you see", "Who is affected", "What Holdfast does to your pods", "Going back", "Limits"}

// inOrder tells whether a page has the sections in their order. A page without any section leads to
// that of another fix, and needs none.
func inOrder(page string, sections []string) bool {
	if !strings.Contains(page, "\n## ") {
		return true
	}
	for _, s := range sections {
		_, after, ok := strings.Cut(page, "\n## "+s+"\n")
		if !ok {
			return false
		}
		page = "\n" + after
	}
	return true
}

// labFolders has one folder a lab, or one for the labs of a fix.
const labFolders = "tools/labs"

// folderOf is the folder below tools/labs/ that a file lies in; "" if it is not in one.
func folderOf(p string) string {
	parts := strings.Split(p, "/")
	if !strings.HasPrefix(p, labFolders+"/") || len(parts) < 4 || parts[2] == "internal" {
		return ""
	}
	if parts[2] == "checks" {
		return strings.Join(parts[2:min(4, len(parts)-1)], "/")
	}
	return parts[2]
}

// ofFix are the files that the folder of a fix may have: fix.json, the page, the form for upstream, and
// for each base patches and perhaps a page of its own.
var ofFix = regexp.MustCompile(`^patches/(toolchain/)?[a-z0-9.-]+/(fix\.json|README\.md|upstream/[^/]+\.(patch|md)|v[0-9.]+/([0-9]{4}\.patch|README\.md))$`)

// folderFaults: each folder of labs is that of a lab and has its page and its code, and a fix's folder
// has nothing else than what is known of a fix.
func (h *fixRepo) folderFaults() []string {
	var bad []string
	registered := map[string]bool{}
	for lab, folder := range h.folders {
		registered[folder] = true
		if h.files[path.Join(labFolders, folder, "README.md")] == nil {
			bad = append(bad, fmt.Sprintf("lab %s: there is no %s/%s/README.md", lab, labFolders, folder))
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(h.files)), func(p string) bool {
			return path.Dir(p) == path.Join(labFolders, folder) && strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go")
		}) {
			bad = append(bad, fmt.Sprintf("lab %s: its folder %s/%s has no code", lab, labFolders, folder))
		}
	}
	said := map[string]bool{}
	for _, p := range h.paths(func(string) bool { return true }) {
		switch {
		case strings.HasPrefix(p, fixes.Dir+"/") && p != policy && !ofFix.MatchString(p):
			bad = append(bad, fmt.Sprintf("%s: a fix's folder has fix.json, README.md, upstream/ and BASE/NNNN.patch", p))
		case folderOf(p) != "" && !registered[folderOf(p)] && !said[folderOf(p)]:
			said[folderOf(p)] = true
			bad = append(bad, fmt.Sprintf("%s/%s is the folder of no lab: lab without a name lists them", labFolders, folderOf(p)))
		}
	}
	return bad
}
