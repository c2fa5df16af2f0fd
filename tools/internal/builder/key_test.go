// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/digest"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/testrepo"
)

// TestSourceKey: a key changes with what a binary is built from, and with nothing else.
func TestSourceKey(t *testing.T) {
	r := testrepo.New(t)
	r.EditSlugs(t, func(table *slugs.Table) {
		table.Find("louder").Components = []string{testrepo.Binary}
		table.Find("ours").Components = []string{"a-library"}
	})
	key := func(v base.Variant, binary string) string {
		t.Helper()
		k, err := SourceKey(r.Base(t, testrepo.Name), v, binary)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	type cell struct {
		v      base.Variant
		binary string
	}
	cells := []cell{{base.Stock, testrepo.Binary}, {base.Ours, testrepo.Binary}, {base.Ours, "other"}, {base.Ours.Without("louder"), testrepo.Binary}}
	keys := func() (out [4]string) {
		for i, c := range cells {
			out[i] = key(c.v, c.binary)
		}
		return out
	}
	before := keys()
	if before[0] == before[1] || before[1] == before[3] || before[1] == before[2] {
		t.Errorf("different binaries have one key: %q", before)
	}
	if again := keys(); again != before {
		t.Errorf("the same binaries have other keys: %q, %q", before, again)
	}
	for _, c := range []struct {
		what, file, text string
		changed          [4]bool
	}{
		{"an overlay file of a slug of one binary", testrepo.Overlay, testrepo.OverlayFiles[testrepo.Overlay] + "\nfunc More() {}\n", [4]bool{false, true, false, false}},
		{"an overlay file of a library's slug", testrepo.OverlayPkg, testrepo.OverlayFiles[testrepo.OverlayPkg] + "\nconst More = 1\n", [4]bool{false, true, true, true}},
		{"a test", "pkg/ours/ours_test.go", testrepo.OverlayFiles["pkg/ours/ours_test.go"] + "\n// More.\n", [4]bool{}},
		{"the pins", "go.sum", "# more\n", [4]bool{true, true, true, true}},
	} {
		was := keys()
		r.Write(t, c.file, c.text)
		for i, k := range keys() {
			if (k != was[i]) != c.changed[i] {
				t.Errorf("%s: the key of %v changed: %v", c.what, cells[i], k != was[i])
			}
		}
	}
	patch := string(r.Read(t, testrepo.Carry+"/"+testrepo.Louder))
	was := keys()
	r.Write(t, testrepo.Carry+"/"+testrepo.Louder, strings.Replace(patch, "Subject: [PATCH] ", "Subject: [PATCH] much ", 1))
	if keys() != was || string(r.Read(t, testrepo.Carry+"/"+testrepo.Louder)) == patch {
		t.Error("the text above a patch changes the key")
	}
	r.Write(t, testrepo.Carry+"/"+testrepo.Louder, strings.Replace(patch, `Shout("hello")`, `Shout("hallo")`, 1))
	if k := key(base.Ours, testrepo.Binary); k == was[1] {
		t.Error("a changed patch does not change the key")
	}
	r.Write(t, testrepo.Carry+"/"+testrepo.Louder, patch)
	r.Write(t, "go.sum", "")
	if _, err := SourceKey(r.Base(t, testrepo.Name), "ours -nothing", testrepo.Binary); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a slug that is not there: %v", err)
	}
	if _, err := SourceKey(r.Base(t, testrepo.Name), base.Ours, "bye"); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("a binary that is not there: %v", err)
	}
}

// TestAddDir: a program of our own and what cgo includes count, tests and folders do not.
func TestAddDir(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		d := digest.New()
		if err := addDir(d, root, "dir"); err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	first := write("dir/main.go", "package main")
	if write("dir/main_test.go", "package main") != first || write("dir/testdata/x.go", "package x") != first {
		t.Error("a test or a folder changes the digest")
	}
	if write("dir/main.go", "package main // more") == first {
		t.Error("a changed file does not change the digest")
	}
	if err := addDir(digest.New(), root, "none"); err == nil {
		t.Error("no folder: no error")
	}
}
