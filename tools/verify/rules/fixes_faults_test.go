// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
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

// formOf is a fix of the base v1.9.11 with an overlay.
func formOf(name string, overlay ...string) *fixes.Fix {
	return &fixes.Fix{Name: name, Kind: fixes.Own, Forms: []*fixes.Form{{Base: "v1.9.11", Spec: fixes.Spec{Overlay: overlay}}}}
}

// smallRepo is a repository in which all is well: one fix of one base.
func smallRepo(t *testing.T) *fixRepo {
	t.Helper()
	louder := formOf("much-louder", "pkg/greet/holdfast_much_louder*.go", "pkg/greet/loud/**", "cmd/holdfast_much_louder*.go")
	louder.Incident, louder.Upstream = "nobody hears it", "patches/much-louder/upstream"
	f := louder.Forms[0]
	f.Gates = map[string]fixes.Gate{"Louder": {Default: true, About: "is loud."}, "Shy": {About: "is not."}}
	f.Labs, f.Page = map[string][]string{"loud-1": {"Louder"}}, "patches/much-louder/README.md"
	return &fixRepo{
		repo: files(
			"patches/README.md", "x\n", "patches/much-louder/fix.json", "{}\n", "patches/much-louder/v1.9.11/0210.patch", "x\n",
			"patches/much-louder/README.md", "# louder\n\nKubelet. Gate `Louder`, on\nby default.\n\n| gate | default |\n|---|---|\n| `Shy` | false |\n",
			"tools/labs/checks/loud/README.md", "x\n", "tools/labs/checks/loud/data/x.txt", "x\n", "tools/labs/checks/loud/loud.go", "package loud\n",
			"tools/labs/labs.go", "package labs\n", "tools/labs/internal/kit/kit.go", "package kit\n",
			"pkg/greet/holdfast_much_louder.go", "package greet\n",
			"pkg/greet/loud/any.go", "package loud\n",
			"bases/v1.9.11/overlay/go.mod", "module x\n",
			"bases/v1.9.11/overlay/cmd/holdfast_much_louder_test.go", "package main\n",
			"patches/much-louder/upstream/README.md", "x\n", "patches/much-louder/upstream/0001-x.patch", "x\n",
		),
		table:   &fixes.Table{Fixes: []*fixes.Fix{louder, {Name: "later", Kind: fixes.Planned, Incident: "something else"}}},
		bases:   map[string]*base.Base{"v1.9.11": {Name: "v1.9.11", Mode: base.ModeModule}, "v1.2.0": {Name: "v1.2.0", Mode: base.ModeGOPATH}},
		folders: map[string]string{"loud-1": "checks/loud"},
	}
}

func TestFindsWhatAFixLacks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(h *fixRepo, s *fixes.Fix, f *fixes.Form)
		want   []string
	}{
		{"nothing", func(*fixRepo, *fixes.Fix, *fixes.Form) {}, nil},
		{"file of no fix", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) { h.files["pkg/new.go"] = []byte("package x\n") }, []string{"pkg/new.go is in no fix"}},
		{"own file of no fix", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			h.files["bases/v1.2.0/overlay/pkg/greet/holdfast_much_louder.go"] = []byte("package x\n")
		}, []string{"bases/v1.2.0/overlay/pkg/greet/holdfast_much_louder.go is in no fix"}},
		{"file of two fixes", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			h.table.Fixes = append(h.table.Fixes, formOf("x", "pkg/greet/loud/any.go"))
		}, []string{"pkg/greet/loud/any.go belongs to the fixes much-louder and x", "it has no \"incident\"", "there is no page patches/x/README.md"}},
		{"pattern of nothing", func(_ *fixRepo, _ *fixes.Fix, f *fixes.Form) { f.Overlay = append(f.Overlay, "pkg/gone/*.go") }, []string{`"overlay" has pkg/gone/*.go, and base v1.9.11 has no such file`}},
		{"name", func(h *fixRepo, _ *fixes.Fix, f *fixes.Form) {
			h.files["pkg/greet/holdfast_much.go"] = []byte("package greet\n")
			f.Overlay = append(f.Overlay, "pkg/greet/holdfast_much.go")
		}, []string{"pkg/greet/holdfast_much.go belongs to the fix much-louder: name it holdfast_much_louder….go"}},
		{"default", func(_ *fixRepo, _ *fixes.Fix, f *fixes.Form) { f.Gates["Louder"] = fixes.Gate{About: "is loud."} }, []string{"does not say that the gate `Louder` is off by default"}},
		{"gate of the code", func(h *fixRepo, _ *fixes.Fix, f *fixes.Form) {
			h.files["pkg/features/holdfast_much_louder.go"] = []byte("package features\nconst (\nLouder = \"Louder\"\n)\nvar m = map[string]bool{Louder: true}\n")
			f.Overlay = append(f.Overlay, "pkg/features/holdfast_much_louder.go")
		}, []string{"its overlay registers the gates map[Louder:true] in base v1.9.11, want map[]"}},
		{"default in a table", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			p := "patches/much-louder/README.md"
			h.files[p] = []byte(strings.Replace(string(h.files[p]), "| false |", "| true |", 1))
		}, []string{"does not say that the gate `Shy` is off by default"}},
		{"page", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) { delete(h.files, "patches/much-louder/README.md") }, []string{"there is no page patches/much-louder/README.md", "Louder", "Shy"}},
		{"sections", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			p := "patches/much-louder/README.md"
			h.files[p] = append(h.files[p], "\n## What you see\n\n## Who is affected\n\n## Going back\n\n## What Holdfast does to your pods\n\n## Limits\n"...)
		}, []string{"patches/much-louder/README.md has not the sections What you see, Who is affected"}},
		{"stray file", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			h.files["patches/much-louder/v1.9.11/series"] = []byte("x\n")
		}, []string{"patches/much-louder/v1.9.11/series: a fix's folder has"}},
		{"stray folder", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			h.files["patches/v1.9.11/carry/0001-x.patch"] = []byte("x\n")
		}, []string{"patches/v1.9.11/carry/0001-x.patch: a fix's folder has"}},
		{"upstream", func(h *fixRepo, s *fixes.Fix, _ *fixes.Form) {
			delete(h.files, "patches/much-louder/upstream/README.md")
		}, []string{"there is no patches/much-louder/upstream/README.md"}},
		{"base", func(_ *fixRepo, s *fixes.Fix, f *fixes.Form) {
			o := *f
			o.Base = "v1.3.0"
			s.Forms = append(s.Forms, &o)
		}, []string{"there is no base v1.3.0"}},
		{"lab's page", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) { delete(h.files, "tools/labs/checks/loud/README.md") }, []string{"lab loud-1: there is no tools/labs/checks/loud/README.md"}},
		{"lab's code", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			delete(h.files, "tools/labs/checks/loud/loud.go")
			h.files["tools/labs/checks/loud/loud_test.go"] = []byte("package loud\n")
		}, []string{"lab loud-1: its folder tools/labs/checks/loud has no code"}},
		{"folder of no lab", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) { h.files["tools/labs/lou/data/x.json"] = []byte("x\n") }, []string{"tools/labs/lou is the folder of no lab"}},
		{"check of no lab", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			h.files["tools/labs/checks/lou/README.md"] = []byte("x\n")
		}, []string{"tools/labs/checks/lou is the folder of no lab"}},
		{"file of no check", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) {
			h.files["tools/labs/checks/README.md"] = []byte("x\n")
		}, []string{"tools/labs/checks is the folder of no lab"}},
		{"incident", func(h *fixRepo, _ *fixes.Fix, _ *fixes.Form) { h.table.Find("later").Incident = "" }, []string{`patches/later/fix.json: it has no "incident"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := smallRepo(t)
			s := h.table.Find("much-louder")
			tc.change(h, s, s.Forms[0])
			var got []string
			for _, f := range []func() []string{h.overlayFaults, h.nameFaults, h.formFaults, h.folderFaults} {
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
