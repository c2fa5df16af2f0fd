// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/patch"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/testrepo"
)

func TestFindsGates(t *testing.T) {
	r := files(
		"pkg/features/a.go", `package features
const (
	One utilfeature.Feature = "One"
	Two utilfeature.Feature = "TwoNamed"
	NotAdded utilfeature.Feature = "NotAdded"
)
func init() { utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
	One: {Default: true, PreRelease: utilfeature.Beta},
	Two: {Default: false, PreRelease: utilfeature.Alpha},
}) }`,
		"bases/x/overlay/pkg/features/b.go", "package features\nconst Old = \"Old\"\nvar defaults = map[string]bool{Old: true}\n",
		"pkg/features/c_test.go", "package features\nconst T = \"T\"\nvar m = map[string]bool{T: true}\n",
		"pkg/features/d.go", "package features\nconst Other = \"Other\"\nvar defaults = map[string]bool{Other: true}\n",
	)
	gates := gatesOf(r, []string{"pkg/features/a.go", "bases/x/overlay/pkg/features/b.go", "pkg/features/c_test.go"})
	if got := fmt.Sprint(gates); got != "map[Old:true One:true TwoNamed:false]" {
		t.Error(got)
	}
}

// smallHouse is a repository in which all is well: one fix of one base.
func smallHouse(t *testing.T) *house {
	t.Helper()
	raw, err := testrepo.Patch("patches/v1.9.11/carry/0010-much-louder.patch", patch.Change{Path: "a.go", Old: []byte("a\n"), New: []byte("b\n")})
	if err != nil {
		t.Fatal(err)
	}
	s := strings.Replace(string(raw), "Feature-Gate: none", "Feature-Gate: Louder, Shy", 1)
	p, err := patch.Parse("patches/v1.9.11/carry/0010-much-louder.patch", []byte(strings.Replace(s, "Lab: none", "Lab: loud", 1)))
	if err != nil {
		t.Fatal(err)
	}
	return &house{
		repo: files(
			"docs/patches/much-louder.md", "# louder\n\nKubelet. Gate `Louder`, on\nby default.\n\n| gate | default |\n|---|---|\n| `Shy` | false |\n",
			"tools/labs/checks/loud/README.md", "x\n", "tools/labs/checks/loud/data/x.txt", "x\n", "tools/labs/checks/loud/loud.go", "package loud\n",
			"tools/labs/labs.go", "package labs\n", "tools/labs/internal/kit/kit.go", "package kit\n",
			"pkg/features/holdfast_much_louder.go", "package features\nconst (\nLouder = \"Louder\"\nShy = \"Shy\"\n)\nvar m = map[string]bool{Louder: true, Shy: false}\n",
			"pkg/greet/loud/any.go", "package loud\n",
			"bases/v1.9.11/overlay/go.mod", "module x\n",
			"bases/v1.9.11/overlay/cmd/holdfast_much_louder_test.go", "package main\n",
			"patches/upstream/loud/README.md", "x\n", "patches/upstream/loud/0001-x.patch", "x\n",
		),
		table: &slugs.Table{Slugs: []*slugs.Slug{
			{Name: "much-louder", Kind: slugs.Fix, Incident: "nobody hears it", Upstream: "patches/upstream/loud", Forms: []*slugs.Form{{
				Bases: []string{"v1.9.11"}, Gates: map[string]bool{"Louder": true, "Shy": false}, Patches: []string{p.Name},
				Overlay: []string{"pkg/features/holdfast_much_louder.go", "pkg/greet/loud/**", "cmd/holdfast_much_louder*.go"},
				Labs:    map[string][]string{"loud-1": {"Louder"}}, Page: "docs/patches/much-louder.md",
			}}},
			{Name: "later", Kind: slugs.Planned, Incident: "something else"},
		}},
		bases:  map[string]*base.Base{"v1.9.11": {Name: "v1.9.11"}, "v1.2.0": {Name: "v1.2.0"}},
		series: map[string]map[string][]*patch.Patch{"v1.9.11": {"carry": {p}}, "v1.2.0": {}},
		homes:  map[string]string{"loud-1": "checks/loud"},
	}
}

func TestFindsWhatASlugLacks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(h *house, s *slugs.Slug, f *slugs.Form)
		want   []string
	}{
		{"nothing", func(*house, *slugs.Slug, *slugs.Form) {}, nil},
		{"patch of no slug", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Patches = nil }, []string{"0010-much-louder.patch is in no slug of base v1.9.11"}},
		{"patch that is not there", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Patches = append(f.Patches, "0011-x.patch") }, []string{"has the patch 0011-x.patch, which no series"}},
		{"another series", func(_ *house, s *slugs.Slug, _ *slugs.Form) { s.Kind = slugs.Security }, []string{"is in the series carry, but slug much-louder is of kind \"security\""}},
		{"gate that no trailer names", func(h *house, _ *slugs.Slug, f *slugs.Form) {
			f.Gates["Loudest"] = true
			h.files["pkg/features/holdfast_much_louder.go"] = []byte("package features\nconst (\nLouder = \"Louder\"\nLoudest = \"Loudest\"\nShy = \"Shy\"\n)\nvar m = map[string]bool{Louder: true, Loudest: true, Shy: false}\n")
			h.files["docs/patches/much-louder.md"] = append(h.files["docs/patches/much-louder.md"], "| `Loudest` | true |\n"...)
		}, []string{"slug much-louder has the gate Loudest, which no patch of base v1.9.11 names in its trailer Feature-Gate"}},
		{"trailer of another gate", func(_ *house, _ *slugs.Slug, f *slugs.Form) { delete(f.Gates, "Louder") }, []string{"trailer Feature-Gate: slug much-louder has no gate Louder", "its overlay registers map[Louder:true Shy:false]"}},
		{"trailer of another lab", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Labs = nil }, []string{"trailer Lab: no lab of slug much-louder"}},
		{"file of no slug", func(h *house, _ *slugs.Slug, _ *slugs.Form) { h.files["pkg/new.go"] = []byte("package x\n") }, []string{"pkg/new.go is in no slug"}},
		{"own file of no slug", func(h *house, _ *slugs.Slug, _ *slugs.Form) {
			h.files["bases/v1.2.0/overlay/pkg/features/holdfast_much_louder.go"] = []byte("package x\n")
		}, []string{"bases/v1.2.0/overlay/pkg/features/holdfast_much_louder.go is in no slug"}},
		{"file of two slugs", func(h *house, _ *slugs.Slug, _ *slugs.Form) {
			h.table.Slugs = append(h.table.Slugs, &slugs.Slug{Name: "x", Kind: slugs.Toolchain, Forms: []*slugs.Form{{Bases: []string{"v1.9.11"}, Overlay: []string{"pkg/greet/loud/any.go"}}}})
		}, []string{"pkg/greet/loud/any.go belongs to the slugs much-louder and x"}},
		{"pattern of nothing", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Overlay = append(f.Overlay, "pkg/gone/*.go") }, []string{"has the overlay pkg/gone/*.go, and base v1.9.11 has no such file"}},
		{"name", func(h *house, _ *slugs.Slug, f *slugs.Form) {
			h.files["pkg/greet/holdfast_much.go"] = []byte("package greet\n")
			f.Overlay = append(f.Overlay, "pkg/greet/holdfast_much.go")
		}, []string{"pkg/greet/holdfast_much.go belongs to slug much-louder: name it holdfast_much_louder….go"}},
		{"default", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Gates["Louder"] = false }, []string{"its gates are map[Louder:false", "does not say that the gate `Louder` is off by default"}},
		{"default in a table", func(h *house, _ *slugs.Slug, _ *slugs.Form) {
			p := "docs/patches/much-louder.md"
			h.files[p] = []byte(strings.Replace(string(h.files[p]), "| false |", "| true |", 1))
		}, []string{"does not say that the gate `Shy` is off by default"}},
		{"page", func(h *house, _ *slugs.Slug, _ *slugs.Form) { delete(h.files, "docs/patches/much-louder.md") }, []string{"there is no page docs/patches/much-louder.md", "Louder", "Shy"}},
		{"no page", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Page = "" }, []string{`no "page" for v1.9.11`, "docs/patches/much-louder.md is the page of no slug"}},
		{"page of no slug", func(h *house, _ *slugs.Slug, _ *slugs.Form) { h.files["docs/patches/x.md"] = []byte("x\n") }, []string{"docs/patches/x.md is the page of no slug"}},
		{"upstream", func(h *house, s *slugs.Slug, _ *slugs.Form) { s.Upstream = "patches/upstream/x" }, []string{"there is no patches/upstream/x/README.md", "patches/upstream/loud is the \"upstream\" of no slug"}},
		{"base", func(_ *house, _ *slugs.Slug, f *slugs.Form) { f.Bases = append(f.Bases, "v1.3.0") }, []string{"there is no base v1.3.0"}},
		{"lab's page", func(h *house, _ *slugs.Slug, _ *slugs.Form) { delete(h.files, "tools/labs/checks/loud/README.md") }, []string{"lab loud-1: there is no tools/labs/checks/loud/README.md"}},
		{"lab's code", func(h *house, _ *slugs.Slug, _ *slugs.Form) {
			delete(h.files, "tools/labs/checks/loud/loud.go")
			h.files["tools/labs/checks/loud/loud_test.go"] = []byte("package loud\n")
		}, []string{"lab loud-1: its room tools/labs/checks/loud has no code"}},
		{"room of no lab", func(h *house, _ *slugs.Slug, _ *slugs.Form) { h.files["tools/labs/lou/data/x.json"] = []byte("x\n") }, []string{"tools/labs/lou is the room of no lab"}},
		{"check of no lab", func(h *house, _ *slugs.Slug, _ *slugs.Form) {
			h.files["tools/labs/checks/lou/README.md"] = []byte("x\n")
		}, []string{"tools/labs/checks/lou is the room of no lab"}},
		{"file of no check", func(h *house, _ *slugs.Slug, _ *slugs.Form) {
			h.files["tools/labs/checks/README.md"] = []byte("x\n")
		}, []string{"tools/labs/checks is the room of no lab"}},
		{"old folder", func(h *house, _ *slugs.Slug, _ *slugs.Form) { h.files["labs/loud/README.md"] = []byte("x\n") }, []string{"labs/loud/README.md: a lab's page, data and code lie in tools/labs/<name>"}},
		{"incident", func(h *house, _ *slugs.Slug, _ *slugs.Form) { h.table.Find("later").Incident = "" }, []string{`slug later: it has no "incident"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := smallHouse(t)
			s := h.table.Find("much-louder")
			tc.change(h, s, s.Forms[0])
			var got []string
			for _, f := range []func() []string{h.patchFaults, h.overlayFaults, h.nameFaults, h.formFaults, h.folderFaults} {
				got = append(got, f()...)
			}
			found(t, got, tc.want...)
		})
	}
}

func TestFindsDirections(t *testing.T) {
	d := direction{of: "./x", not: []string{"a/b", "k8s.io"}, says: "no"}
	found(t, directionFaults(d, []string{"a", "a/bc", "b/k8s.io", "holdfast/x"}))
	found(t, directionFaults(d, []string{"a/b", "a/b/c", "k8s.io/client-go/rest"}), "./x links a/b: no", "links a/b/c", "links k8s.io/client-go/rest")
}
