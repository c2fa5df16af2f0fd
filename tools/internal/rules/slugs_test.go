// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/patch"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
	_ "holdfast/tools/labs" // every lab registers itself
)

// house is what the rules about slugs look at.
type house struct {
	*repo
	table *slugs.Table
	bases map[string]*base.Base
	// series are the patches of a base by its series.
	series map[string]map[string][]*patch.Patch
	// homes are the rooms below tools/labs/ of the registered labs, by their names.
	homes map[string]string
}

// TestSlugs: slugs.json and the repository say the same.
func TestSlugs(t *testing.T) {
	r := checkout(t)
	table, err := slugs.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	if err := labkit.UseTable(table); err != nil {
		t.Error(err)
	}
	h := &house{repo: r, table: table, bases: map[string]*base.Base{}, series: map[string]map[string][]*patch.Patch{}, homes: map[string]string{}}
	for _, l := range labkit.Labs() {
		h.homes[l.Name] = l.Home()
	}
	for _, b := range bases(t, r.root) {
		h.bases[b.Name], h.series[b.Name] = b, series(t, b)
	}
	report(t, h.patchFaults())
	report(t, h.overlayFaults())
	report(t, h.nameFaults())
	report(t, h.metricFaults())
	report(t, h.ladderFaults())
	report(t, h.formFaults())
	report(t, h.folderFaults())
}

// TestRooms: a lab's code is in the room that has its page. The function that
// makes its steps tells its package; the linker escapes dots in a path's last element.
func TestRooms(t *testing.T) {
	for _, l := range labkit.Labs() {
		name, err := url.PathUnescape(runtime.FuncForPC(reflect.ValueOf(l.Steps).Pointer()).Name())
		if want := "holdfast/" + rooms + "/" + l.Home(); err != nil || !strings.HasPrefix(name, want+".") {
			t.Errorf("lab %s: its code is %s, its room is %s (Lab.Folder): they are one folder", l.Name, name, want)
		}
	}
}

// patchFaults: each patch of a series is in one slug, of the kind that has its
// patches there, and says what the table says.
func (h *house) patchFaults() []string {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(h.series)) {
		there, gates := map[string]bool{}, map[string]bool{}
		for _, series := range slices.Sorted(maps.Keys(h.series[name])) {
			for _, p := range h.series[name][series] {
				there[p.Name] = true
				for _, g := range p.List("Feature-Gate") {
					gates[g] = true
				}
				s := h.table.OfPatch(name, p.Name)
				if s == nil {
					bad = append(bad, fmt.Sprintf("%s is in no slug of base %s: add it to \"patches\" of one in %s", p.File, name, slugs.File))
					continue
				}
				if s.Kind.Series() != series {
					bad = append(bad, fmt.Sprintf("%s is in the series %s, but slug %s is of kind %q, whose patches are in %q", p.File, series, s.Name, s.Kind, s.Kind.Series()))
				}
				bad = append(bad, h.trailerFaults(p, s)...)
			}
		}
		for _, s := range h.table.Of(name) {
			for _, p := range s.Form(name).Patches {
				if !there[p] {
					bad = append(bad, fmt.Sprintf("%s: slug %s has the patch %s, which no series of base %s has", slugs.File, s.Name, p, name))
				}
			}
			for _, g := range slices.Sorted(maps.Keys(s.Form(name).Gates)) {
				if !gates[g] {
					bad = append(bad, fmt.Sprintf("%s: slug %s has the gate %s, which no patch of base %s names in its trailer Feature-Gate", slugs.File, s.Name, g, name))
				}
			}
		}
	}
	return bad
}

// trailerFaults compares a patch's trailers with its slug. A patch that several
// bases share speaks of all of them.
func (h *house) trailerFaults(p *patch.Patch, s *slugs.Slug) []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, p.File+": trailer "+fmt.Sprintf(format, args...)) }
	gates, homes := map[string]bool{}, map[string]bool{}
	for _, f := range s.Forms {
		if !slices.Contains(f.Patches, p.Name) {
			continue
		}
		maps.Copy(gates, f.Gates)
		for lab := range f.Labs {
			homes[path.Base(h.homes[lab])] = true
		}
	}
	for _, g := range p.List("Feature-Gate") {
		if _, ok := gates[g]; !ok {
			say("Feature-Gate: slug %s has no gate %s in %s", s.Name, g, slugs.File)
		}
	}
	for _, l := range p.List("Lab") {
		if !homes[l] {
			say("Lab: no lab of slug %s in %s has a room of the name %s below %s", s.Name, slugs.File, l, rooms)
		}
	}
	return bad
}

// overlayFiles are the files of ours for a base, by their paths in the tree.
func (h *house) overlayFiles(b string) map[string]string {
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

// overlayFaults: each file of ours is in one slug of a base, and each pattern
// stands for a file.
func (h *house) overlayFaults() []string {
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
				bad = append(bad, fmt.Sprintf("%s belongs to the slugs %s of base %s: make their \"overlay\" in %s narrower", files[f], strings.Join(of, " and "), name, slugs.File))
			case len(of) == 0 && (!shared || len(h.table.Claims(f)) == 0) && !said[files[f]]:
				said[files[f]] = true
				bad = append(bad, fmt.Sprintf("%s is in no slug: add it to \"overlay\" of one in %s", files[f], slugs.File))
			}
		}
		for _, s := range h.table.Of(name) {
			for _, p := range s.Form(name).Overlay {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(f string) bool { return slugs.Match(p, f) }) {
					bad = append(bad, fmt.Sprintf("%s: slug %s has the overlay %s, and base %s has no such file", slugs.File, s.Name, p, name))
				}
			}
		}
	}
	return bad
}

// oldNames are overlay files from before the rule of names that cannot be
// renamed: their names are in the product's binaries.
var oldNames = []string{"pkg/features/features.go"}

// nameFaults: a file of ours beside upstream's is named holdfast_<slug>.go, or
// by the slug's first two words; without "holdfast_" if the base is older. A
// package of our own is claimed as a whole folder, and has any names.
func (h *house) nameFaults() []string {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(h.bases)) {
		for tree, file := range h.overlayFiles(name) {
			s := h.table.OfFile(name, tree)
			if s == nil || !strings.HasSuffix(tree, ".go") || slices.Contains(oldNames, tree) ||
				slices.ContainsFunc(s.Form(name).Overlay, func(p string) bool { return strings.HasSuffix(p, "/**") && slugs.Match(p, tree) }) {
				continue
			}
			words := strings.Split(s.Name, "-")
			want := strings.Join(words[:min(2, len(words))], "_")
			stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(tree), ".go"), "_test")
			stem = strings.TrimPrefix(stem, "holdfast_")
			if stem != want && !strings.HasPrefix(stem, want+"_") && !(stem == "go14" || stem == "features") {
				bad = append(bad, fmt.Sprintf("%s belongs to slug %s: name it holdfast_%s….go (patches/README.md)", file, s.Name, want))
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// formFaults: the gates are those that the code registers, the page says their
// defaults, and what the table names is there.
func (h *house) formFaults() []string {
	var bad []string
	for _, s := range h.table.Slugs {
		say := func(format string, args ...any) {
			bad = append(bad, fmt.Sprintf("%s: slug %s: ", slugs.File, s.Name)+fmt.Sprintf(format, args...))
		}
		if s.Upstream != "" && h.files[s.Upstream+"/README.md"] == nil {
			say("\"upstream\": there is no %s/README.md", s.Upstream)
		}
		if s.Incident == "" && (s.Kind == slugs.Planned || s.Kind == slugs.Fix && len(s.Forms) > 0 && len(s.Forms[0].Gates) == 0) {
			say("it has no \"incident\"")
		}
		for _, f := range s.Forms {
			for _, name := range f.Bases {
				if h.bases[name] == nil {
					say("there is no base %s", name)
					continue
				}
				var own []string
				for tree, file := range h.overlayFiles(name) {
					if f.Has(tree) {
						own = append(own, file)
					}
				}
				if got := gatesOf(h.repo, own); !maps.Equal(got, f.Gates) && len(got)+len(f.Gates) > 0 {
					say("its gates are %v, its overlay registers %v in base %s", f.Gates, got, name)
				}
			}
			if s.Kind != slugs.Toolchain && f.Page == "" {
				say("no \"page\" for %s", strings.Join(f.Bases, ", "))
			}
			if f.Page != "" {
				page := string(h.files[f.Page])
				if page == "" {
					say("there is no page %s", f.Page)
				}
				for _, g := range slices.Sorted(maps.Keys(f.Gates)) {
					want := map[bool]string{true: "on by default", false: "off by default"}[f.Gates[g]]
					if !says(page, "`"+g+"`", want) && !strings.Contains(page, fmt.Sprintf("| `%s` | %v |", g, f.Gates[g])) {
						say("%s does not say that the gate `%s` is %s", f.Page, g, want)
					}
				}
			}
		}
	}
	return bad
}

// rooms has one folder a lab, or one for the labs of a slug.
const rooms = "tools/labs"

// roomOf is the room below tools/labs/ that a file lies in; "" if it is not in one.
func roomOf(p string) string {
	parts := strings.Split(p, "/")
	if !strings.HasPrefix(p, rooms+"/") || len(parts) < 4 || parts[2] == "internal" {
		return ""
	}
	if parts[2] == "checks" {
		return strings.Join(parts[2:min(4, len(parts)-1)], "/")
	}
	return parts[2]
}

// folderFaults: each page, each lab's room and each folder for upstream is
// somebody's. A room has its page and its code.
func (h *house) folderFaults() []string {
	var bad []string
	pages, upstreams, homes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range h.table.Slugs {
		upstreams[s.Upstream] = true
		for _, f := range s.Forms {
			pages[f.Page] = true
		}
	}
	for lab, home := range h.homes {
		homes[home] = true
		if h.files[path.Join(rooms, home, "README.md")] == nil {
			bad = append(bad, fmt.Sprintf("lab %s: there is no %s/%s/README.md", lab, rooms, home))
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(h.files)), func(p string) bool {
			return path.Dir(p) == path.Join(rooms, home) && strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go")
		}) {
			bad = append(bad, fmt.Sprintf("lab %s: its room %s/%s has no code", lab, rooms, home))
		}
	}
	said := map[string]bool{}
	for _, p := range h.paths(func(string) bool { return true }) {
		parts := strings.Split(p, "/")
		switch {
		case path.Dir(p) == "docs/patches" && !pages[p]:
			bad = append(bad, fmt.Sprintf("%s is the page of no slug in %s", p, slugs.File))
		case len(parts) > 3 && parts[0] == "patches" && parts[1] == "upstream" && !upstreams[strings.Join(parts[:3], "/")] && !said[parts[2]]:
			said[parts[2]] = true
			bad = append(bad, fmt.Sprintf("patches/upstream/%s is the \"upstream\" of no slug in %s", parts[2], slugs.File))
		case roomOf(p) != "" && !homes[roomOf(p)] && !said[rooms+roomOf(p)]:
			said[rooms+roomOf(p)] = true
			bad = append(bad, fmt.Sprintf("%s/%s is the room of no lab: lab without a name lists them", rooms, roomOf(p)))
		case parts[0] == "labs" && !said["labs"]:
			said["labs"] = true
			bad = append(bad, fmt.Sprintf("%s: a lab's page, data and code lie in %s/<name>", p, rooms))
		}
	}
	return bad
}
