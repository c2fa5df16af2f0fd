// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/testrepo"
)

func TestLoad(t *testing.T) {
	r := testrepo.New(t)
	names, err := base.Names(r.Root)
	if err != nil || !slices.Equal(names, []string{testrepo.GOPATHName, testrepo.Name}) {
		t.Errorf("%q, %v", names, err)
	}
	b := r.Base(t, testrepo.Name)
	if name, err := base.Default(r.Root); name != testrepo.Name || err != nil {
		t.Errorf("the default base is %q, %v", name, err)
	}
	if got := b.VariantNames(); !slices.Equal(got, []base.Variant{base.Stock, base.Ours}) {
		t.Errorf("variants: %q", got)
	}
	has := func(b *base.Base, v base.Variant, want ...string) {
		t.Helper()
		got, err := b.FixesOf(v)
		if err != nil || !slices.Equal(fixes.Names(got), want) {
			t.Errorf("%s is made of %q, %v, want %q", v, fixes.Names(got), err, want)
		}
	}
	has(b, base.Stock, "fork-alphabet")
	has(b, base.Ours, "louder", "ours", "version", "fork-alphabet")
	has(b, "ours -louder -version", "ours", "fork-alphabet")
	if got := b.BinaryNames(true); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("drop-in binaries: %q", got)
	}
	if got := b.BinaryNames(false); !slices.Equal(got, []string{"hello", "other"}) {
		t.Errorf("binaries: %q", got)
	}
	if got := b.SrcDir(base.Ours); got != filepath.Join(r.Root, "_output/src/v1.9.11/ours") {
		t.Error(got)
	}
	old := r.Base(t, testrepo.GOPATHName)
	if got := old.SrcDir(base.Ours); got != filepath.Join(r.Root, "_output/src/v1.2.0/ours/src/example.com/up") {
		t.Error(got)
	}
	if got := old.VersionPackages(); !slices.Equal(got, []string{"example.com/up/pkg/version"}) {
		t.Error(got)
	}
	has(old, "naive", "dep-word")
	has(old, "naive -dep-word")
	if got := old.VariantNames(); !slices.Equal(got, []base.Variant{base.Stock, base.Ours, "naive"}) {
		t.Errorf("variants: %q", got)
	}
	for v, want := range map[base.Variant]string{"ours -none": `no fix "none"`, "ours -dep-word": `no fix "dep-word"`, "ours -version -louder": `write it "ours -louder -version"`} {
		if err := b.HasVariant(v); exit.Code(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", v, err)
		}
	}
	if err := b.HasVariant("naive"); exit.Code(err) != 2 {
		t.Error(err)
	}
}

// TestComponent: a binary with a variant of its own has the fixes that name it, and
// what today's Go needs.
func TestComponent(t *testing.T) {
	r := testrepo.New(t)
	r.EditBase(t, testrepo.Name, func(b *base.Base) {
		b.Variants["third"] = base.VariantSpec{Product: true, Component: "other"}
		b.Binaries["other"] = base.Binary{Package: "./cmd/hello", Optional: true}
	})
	r.EditFix(t, "louder", func(c *fixes.Content) { c.Components = []string{"hello", "other"} })
	r.EditFix(t, "ours", func(c *fixes.Content) { c.Components = []string{"hello"} })
	b := r.Base(t, testrepo.Name)
	for v, want := range map[base.Variant][]string{"third": {"louder", "fork-alphabet"}, "third -louder": {"fork-alphabet"}, base.Ours: {"louder", "ours", "version", "fork-alphabet"}} {
		if got, err := b.FixesOf(v); err != nil || !slices.Equal(fixes.Names(got), want) {
			t.Errorf("%s is made of %q, %v, want %q", v, fixes.Names(got), err, want)
		}
	}
	for _, tc := range []struct {
		of     base.Variant
		binary string
		want   base.Variant
	}{
		{base.Ours, "other", "third"}, {"ours -louder", "other", "third -louder"}, {base.Ours, "hello", base.Ours},
		{"ours -louder", "hello", "ours -louder"}, {base.Stock, "other", base.Stock},
	} {
		if got := b.TreeOf(tc.of, tc.binary); got != tc.want {
			t.Errorf("%s of %s is built of %q, want %q", tc.binary, tc.of, got, tc.want)
		}
	}
	if !b.IsOurs("third") || b.Component("third") != "other" || b.Component(base.Ours) != "" {
		t.Error("the variant of a component is ours, and of that component")
	}
	if !slices.Equal(b.BinaryNames(true), []string{"hello"}) || !slices.Equal(b.OptionalNames(), []string{"other"}) {
		t.Errorf("drop-in %q, optional %q", b.BinaryNames(true), b.OptionalNames())
	}
	const file = "bases/v1.9.11/base.json"
	good := r.Read(t, file)
	for old, says := range map[string]string{`"component": "other"`: `which is no binary of the base`, `"optional": true`: `"dropIn" and "optional"`} {
		bad := map[string]string{`"component": "other"`: `"component": "none"`, `"optional": true`: `"dropIn": true, "optional": true`}[old]
		if !strings.Contains(good, old) {
			t.Fatalf("base.json has no %q", old)
		}
		r.Write(t, file, strings.Replace(good, old, bad, 1))
		if _, err := base.Load(r.Root, testrepo.Name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	r := testrepo.New(t)
	const file = "bases/v1.9.11/base.json"
	good := r.Read(t, file)
	for _, tc := range []struct{ name, old, new, says string }{
		{"name", `"base": "v1.9.11"`, `"base": "v1.9.12"`, `"base" is "v1.9.12", the folder is "v1.9.11"`},
		{"module", `"module": "example.com/up"`, `"module": ""`, `"module" is empty`},
		{"version", `"version": "v1.9.11"`, `"version": ""`, `"version" is empty`},
		{"sum", `"sum": "h1:`, `"sum": "go.sum:`, `"sum" is "go.sum:`},
		{"mode", `"mode": "module"`, `"mode": ""`, `"mode" is ""`},
		{"release", `"release": "v1.9.11+holdfast.1"`, `"release": ""`, `"release" is empty, though there is a variant "ours"`},
		{"variant", `"stock": {`, `"st-ock": {`, `"variants" has "st-ock": a name is one word`},
		{"package", `"./cmd/hello"`, `"cmd/hello"`, `"package" is "cmd/hello": it starts with "./"`},
		{"package of another module", `"./cmd/hello"`, `"example/hello"`, `or is a path such as "github.com/…"`},
		{"assets", `"package": "./cmd/hello"`, `"package": "./cmd/hello", "assets": {"generator": "example.com/gen", "file": "data.go", "from": []}`, `"assets" has an empty "generator", "file" or "from"`},
		{"unknown field", `"mode":`, `"modus": "module", "mode":`, `unknown field "modus"`},
		{"type", `"variants": {`, `"variants": 7, "x": {`, "variants"},
		{"cut off", "\n}", "", "unexpected EOF"},
		{"more behind it", "\n}", "\n} {}", "more than one"},
	} {
		if !strings.Contains(good, tc.old) {
			t.Fatalf("%s: base.json has no %q", tc.name, tc.old)
		}
		i := strings.LastIndex(good, tc.old)
		if tc.old != "\n}" {
			i = strings.Index(good, tc.old)
		}
		r.Write(t, file, good[:i]+tc.new+good[i+len(tc.old):])
		_, err := base.Load(r.Root, testrepo.Name)
		if exit.Code(err) != 1 || err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
	}
	for _, name := range []string{"v1.9.12", "", "..", "v1.9.11/.."} {
		_, err := base.Load(r.Root, name)
		if exit.Code(err) != 2 || !strings.Contains(err.Error(), "the bases are v1.2.0, v1.9.11") {
			t.Errorf("base %q: %v", name, err)
		}
	}
}

func TestFindRoot(t *testing.T) {
	r := testrepo.New(t)
	for _, dir := range []string{"", "pkg/ours", "tools", "patches/louder/v1.9.11"} {
		if got, err := base.FindRoot(filepath.Join(r.Root, dir)); got != r.Root || err != nil {
			t.Errorf("from %q: %q, %v", dir, got, err)
		}
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "go.mod"), []byte("module holdfast/other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := base.FindRoot(outside); exit.Code(err) != 2 || !strings.Contains(err.Error(), "--root") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestParseVariant(t *testing.T) {
	for in, want := range map[string]struct {
		v, dir string
		minus  []string
	}{
		"ours":             {"ours", "ours", nil},
		"ours -b  -a -b":   {"ours -a -b", "ours-minus-a-minus-b", []string{"a", "b"}},
		" stock":           {"stock", "stock", nil},
		"ours -v1.2 -x-y ": {"ours -v1.2 -x-y", "ours-minus-v1.2-minus-x-y", []string{"v1.2", "x-y"}},
	} {
		v, err := base.ParseVariant(in)
		if err != nil || string(v) != want.v || v.Dir() != want.dir || !slices.Equal(v.Minus(), want.minus) {
			t.Errorf("%q: %q, %q, %q, %v", in, v, v.Dir(), v.Minus(), err)
		}
	}
	for _, in := range []string{"", "  ", "ours a", "ours -"} {
		if v, err := base.ParseVariant(in); exit.Code(err) != 2 {
			t.Errorf("%q is read as %q, %v", in, v, err)
		}
	}
}
