// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/testrepo"
)

// packer is what go-bindata is to upstream: it writes the text of the files into Go.
const packer = `package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	flag.Bool("nometadata", false, "")
	out, pkg := flag.String("o", "", ""), flag.String("pkg", "", "")
	ignore := flag.String("ignore", "", "")
	flag.Parse()
	text := ""
	for _, dir := range flag.Args() {
		files, _ := filepath.Glob(strings.TrimSuffix(dir, "...") + "*")
		for _, f := range files {
			b, _ := os.ReadFile(f)
			if !strings.HasSuffix(f, *ignore) {
				text += string(b)
			}
		}
	}
	if err := os.WriteFile(*out, []byte("package "+*pkg+"\n\nconst Text = ` + "`\" + text + \"`" + `\n"), 0o644); err != nil {
		panic(err)
	}
}
`

// TestTestBinary builds the tests of a package that needs a generated file, and runs them.
func TestTestBinary(t *testing.T) {
	r := testrepo.New(t)
	files := maps.Clone(testrepo.Upstream)
	files["cmd/packer/main.go"] = packer
	files["test/data/a.txt"], files["test/data/b.jpg"] = "hello ", "picture"
	files["test/generated/doc.go"] = "package generated\n"
	files["test/suite/suite_test.go"] = "package suite\n\nimport (\n\t\"testing\"\n\n\t\"example.com/up/test/generated\"\n)\n\nfunc TestIt(t *testing.T) { t.Log(generated.Text) }\n"
	sum, err := r.Publish(testrepo.Module, testrepo.Name, files)
	if err != nil {
		t.Fatal(err)
	}
	a := &base.Assets{Generator: "example.com/up/cmd/packer", File: "test/generated/text.go", From: []string{"test/data"}, Ignore: []string{".jpg"}}
	r.EditBase(t, testrepo.Name, func(b *base.Base) {
		b.Sum = sum
		b.Binaries["suite.test"] = base.Binary{Package: "./test/suite", Test: true, Assets: a}
	})
	b := r.Base(t, testrepo.Name)
	build := func() string {
		t.Helper()
		out, err := Build(t.Context(), b, Options{Variant: base.Stock, Binaries: []string{"suite.test"}})
		if err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(out[0], "-test.v").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return string(said)
	}
	if said := build(); !strings.Contains(said, "hello") || strings.Contains(said, "picture") {
		t.Errorf("the tests say %q", said)
	}
	first := r.Snapshot(t, "_output/cache")
	if build(); !maps.Equal(first, r.Snapshot(t, "_output/cache")) {
		t.Error("generated again, with nothing changed")
	}
	if r.Exists("_output/src/v1.9.11/stock/test/generated/text.go") {
		t.Error("the generated file is in the tree")
	}
	if left, _ := filepath.Glob(filepath.Join(r.Root, "_output", "assets-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	// A generator that fails, and data that is not there.
	for says, bad := range map[string]base.Assets{
		"cmd/none":  {Generator: "example.com/up/cmd/none", File: a.File, From: a.From},
		"test/nope": {Generator: a.Generator, File: a.File, From: []string{"test/nope"}},
	} {
		b.Binaries["suite.test"] = base.Binary{Package: "./test/suite", Test: true, Assets: &bad}
		if _, err := Build(t.Context(), b, Options{Variant: base.Stock, Binaries: []string{"suite.test"}}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
