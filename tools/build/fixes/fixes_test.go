// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fixes

import (
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
)

// small are the folders of a few fixes, in which all is well.
var small = map[string]string{
	"patches/README.md": "policy\n",
	"patches/a/fix.json": `{"kind": "fix", "components": ["kubelet"], "report": true, "incident": "it breaks",
		"gates": {"A": {"default": true, "about": "makes it work. Off: as stock."}}, "overlay": ["pkg/a/**", "pkg/*/holdfast_a*.go"],
		"labs": {"one": ["A"], "both": ["A"]},
		"bases": {"v1.0.2": {"labs": {"two": ["A"]}, "overlay": []}, "v1.0.3": {"incident": "it breaks there", "gates": {}, "labs": {"three": []}}}}`,
	"patches/a/README.md":                   "page\n",
	"patches/a/v1.0.1/0210.patch":           "x\n",
	"patches/a/v1.0.1/0212.patch":           "x\n",
	"patches/a/v1.0.2/0210.patch":           "x\n",
	"patches/a/v1.0.3/0210.patch":           "x\n",
	"patches/a/v1.0.3/README.md":            "another page\n",
	"patches/a/upstream/x.patch":            "x\n",
	"patches/b/fix.json":                    `{"kind": "security", "gates": {"B": {"default": false}}, "needs": ["a"], "labs": {"both": ["B"]}}`,
	"patches/b/v1.0.1/0101.patch":           "x\n",
	"patches/d/fix.json":                    `{"kind": "planned", "incident": "later"}`,
	"patches/p/fix.json":                    `{"kind": "tool", "bases": {"v1.0.1": {"turnOn": "the program"}}}`,
	"patches/toolchain/c/fix.json":          `{"needs": ["b"], "bases": {"v1.0.3": {"needs": [], "patchesOf": "v1.0.1"}}}`,
	"patches/toolchain/c/v1.0.1/0002.patch": "x\n",
	"patches/toolchain/e/v1.0.3/0001.patch": "x\n",
}

// folders writes the small fixes, changed, below a new folder. An empty content takes a file away.
func folders(t *testing.T, change map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := maps.Clone(small)
	maps.Copy(all, change)
	for file, content := range all {
		if content == "" {
			continue
		}
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func table(t *testing.T) *Table {
	t.Helper()
	s, err := Load(folders(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTable(t *testing.T) {
	s := table(t)
	if got := Names(s.Fixes); !slices.Equal(got, []string{"a", "d", "p", "b", "e", "c"}) {
		t.Errorf("the order is %q", got)
	}
	for base, want := range map[string][]string{"v1.0.1": {"a", "p", "b", "c"}, "v1.0.2": {"a"}, "v1.0.3": {"a", "e", "c"}, "v1.0.4": nil} {
		if got := Names(s.Of(base)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", base, got, want)
		}
	}
	for base, want := range map[string]string{
		"v1.0.1": "patches/toolchain/c/v1.0.1/0002.patch patches/b/v1.0.1/0101.patch patches/a/v1.0.1/0210.patch patches/a/v1.0.1/0212.patch",
		"v1.0.2": "patches/a/v1.0.2/0210.patch",
		"v1.0.3": "patches/toolchain/e/v1.0.3/0001.patch patches/toolchain/c/v1.0.1/0002.patch patches/a/v1.0.3/0210.patch",
	} {
		if got := strings.Join(s.Patches(base), " "); got != want {
			t.Errorf("%s has the patches %s", base, got)
		}
	}
	for file, want := range map[string]string{"patches/a/v1.0.1/0212.patch": "a", "patches/toolchain/c/v1.0.1/0002.patch": "c", "patches/ab/v1.0.1/0001.patch": ""} {
		got := ""
		if f := s.OfPatch(file); f != nil {
			got = f.Name
		}
		if got != want {
			t.Errorf("%s is of %q", file, got)
		}
	}
	a := s.Find("a")
	if !a.Report || a.Upstream != "patches/a/upstream" || a.Form("v1.0.1").Page != "patches/a/README.md" || a.Form("v1.0.3").Page != "patches/a/v1.0.3/README.md" ||
		a.Form("v1.0.1").Incident != "" || a.Form("v1.0.3").Incident != "it breaks there" || len(a.Form("v1.0.3").Gates) != 0 || !a.Form("v1.0.2").Gates["A"].Default {
		t.Errorf("%+v", a)
	}
	for base, want := range map[string]int{"v1.0.1": 2, "v1.0.2": 0, "v1.0.3": 2} {
		if got := a.Form(base).Overlay; len(got) != want {
			t.Errorf("%s has the overlay %q", base, got)
		}
	}
	if s.Find("c").File() != "patches/toolchain/c/fix.json" || s.Find("none") != nil || s.Find("d").Form("v1.0.1") != nil {
		t.Error("a fix is found in another folder")
	}
	for file, want := range map[string]bool{"pkg/a/x.go": true, "pkg/a/b/x.go": true, "pkg/a": false, "pkg/ab/x.go": false,
		"pkg/z/holdfast_a_test.go": true, "pkg/z/y/holdfast_a.go": false} {
		if got := s.OfFile("v1.0.1", file) != nil; got != want {
			t.Errorf("%s: %v", file, got)
		}
		if got := len(s.Claims(file)) == 1; got != want {
			t.Errorf("claims of %s: %v", file, got)
		}
	}
	if got := s.Labs(); len(got) != 4 || !slices.Equal(got["both"], []string{"A", "B"}) || !slices.Equal(s.LabFixes("both"), []string{"a", "b"}) {
		t.Errorf("labs %v", got)
	}
	for _, tc := range []struct{ base, gone, want string }{{"v1.0.1", "a", "a b c"}, {"v1.0.1", "b", "b c"}, {"v1.0.3", "a", "a"}} {
		if got, err := s.Minus(tc.base, []string{tc.gone}); err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s without %s is without %q, %v", tc.base, tc.gone, got, err)
		}
	}
	if _, err := s.Minus("v1.0.2", []string{"b"}); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), `no fix "b"`) {
		t.Error(err)
	}
}

func TestAsleep(t *testing.T) {
	s := table(t)
	for name, want := range map[string]string{"a": "", "b": "`B`", "p": "the program", "c": ""} {
		if got := s.Find(name).Form("v1.0.1").Asleep(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	if _, err := Load(t.TempDir()); exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "the folders of fixes") {
		t.Error(err)
	}
	const b = "patches/b/fix.json"
	for name, tc := range map[string]struct {
		change map[string]string
		says   string
	}{
		"no fix.json":          {map[string]string{b: ""}, "a folder of patches is a fix"},
		"unknown field":        {map[string]string{b: `{"kind": "security", "gate": {}}`}, `unknown field "gate"`},
		"more behind it":       {map[string]string{b: small[b] + "{}"}, b},
		"kind":                 {map[string]string{b: `{"kind": "patch"}`}, `"kind" is "patch"`},
		"toolchain outside":    {map[string]string{b: `{"kind": "toolchain"}`}, `"kind" is "toolchain"`},
		"kind in toolchain":    {map[string]string{"patches/toolchain/c/fix.json": `{"kind": "fix"}`}, "a folder of patches/toolchain has none"},
		"name":                 {map[string]string{"patches/A/fix.json": `{"kind": "planned"}`}, "a name is lower-case words"},
		"name twice":           {map[string]string{"patches/toolchain/a/v1.0.4/0001.patch": "x\n"}, "there is another fix a"},
		"no base":              {map[string]string{"patches/b/v1.0.1/0101.patch": ""}, "there is no folder of a base"},
		"planned with a base":  {map[string]string{"patches/d/v1.0.1/0299.patch": "x\n"}, `still of kind "planned"`},
		"tool with a patch":    {map[string]string{"patches/p/v1.0.1/0299.patch": "x\n"}, "has patches, overlay or gates"},
		"stray file":           {map[string]string{"patches/b/v1.0.1/series": "x\n"}, "patches/b/v1.0.1/series"},
		"number twice":         {map[string]string{"patches/b/v1.0.1/0210.patch": "x\n"}, "patches/a/v1.0.1/0210.patch and patches/b/v1.0.1/0210.patch have one number in base v1.0.1"},
		"toolchain's number":   {map[string]string{"patches/b/v1.0.1/0099.patch": "x\n"}, "numbers up to 0099 are the toolchain's"},
		"number of the others": {map[string]string{"patches/toolchain/c/v1.0.1/0100.patch": "x\n"}, "numbers up to 0099 are the toolchain's"},
		"patches of nothing":   {map[string]string{b: `{"kind": "security", "bases": {"v1.0.2": {"patchesOf": "v1.0.9"}}}`}, "no patches for that"},
		"needs":                {map[string]string{b: `{"kind": "security", "needs": ["e"]}`}, "base v1.0.1: it needs e, which is not a fix of this base"},
		"gate of a lab":        {map[string]string{b: `{"kind": "security", "labs": {"both": ["C"]}}`}, "lab both switches off C"},
		"stage":                {map[string]string{b: `{"kind": "security", "gates": {"B": {"default": true, "stage": "beta"}}}`}, `"stage" is "beta"`},
		"pattern":              {map[string]string{b: `{"kind": "security", "overlay": ["/pkg/a"]}`}, "not a pattern of paths in the tree"},
	} {
		if _, err := Load(folders(t, tc.change)); exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

// TestFeatures: the generated file registers the gates that have an "about", and is a Go file.
func TestFeatures(t *testing.T) {
	s := table(t)
	a := s.Find("a")
	got, err := a.Features("v1.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"// Code generated from patches/a/fix.json; DO NOT EDIT.\n", "\t// A makes it work. Off: as stock.\n\tA utilfeature.Feature = \"A\"\n",
		"\t\tA: {Default: true, PreRelease: utilfeature.Beta},\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("it has no %q:\n%s", want, got)
		}
	}
	if _, err := parser.ParseFile(token.NewFileSet(), a.FeaturesFile(), got, 0); err != nil {
		t.Error(err)
	}
	if got, err := s.Find("b").Features("v1.0.1"); got != nil || err != nil {
		t.Errorf("code registers B: %s, %v", got, err)
	}
	if got, err := a.Features("v1.0.3"); got != nil || err != nil {
		t.Errorf("it has no gate there: %s, %v", got, err)
	}
	if a.FeaturesFile() != "pkg/features/holdfast_a.go" || s.OfFeatures("pkg/features/holdfast_a.go") != a || s.OfFeatures("pkg/features/holdfast_b.go") != nil {
		t.Error("the generated file is another fix's")
	}
	b := s.Find("b").Form("v1.0.1")
	b.Gates = map[string]Gate{"B": {About: strings.Repeat("is long and ", 20)}, "C": {Default: true, Stage: "GA", About: "is short."}}
	got, err = s.Find("b").Features("v1.0.1")
	if err != nil || !strings.Contains(string(got), "utilfeature.Alpha}") || !strings.Contains(string(got), "utilfeature.GA}") {
		t.Errorf("%v\n%s", err, got)
	}
	for _, l := range strings.Split(string(got), "\n") {
		if len(l) > 100 {
			t.Errorf("a line of %d bytes: %s", len(l), l)
		}
	}
}
