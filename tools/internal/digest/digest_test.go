// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestTree: a folder is the files that are not skipped, by their names below the root.
func TestTree(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"a/x.go": "x", "a/b/y.go": "y", "a/b/skip.md": "m", "a/vendor/z.go": "z", "other": "o"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, want := New(), New()
	for _, name := range []string{"a", "other"} {
		if err := got.Tree(root, name, func(p string, e fs.DirEntry) bool { return e.Name() == "vendor" || filepath.Ext(p) == ".md" }); err != nil {
			t.Fatal(err)
		}
	}
	want.File("a/b/y.go", []byte("y"))
	want.File("a/x.go", []byte("x"))
	want.File("other", []byte("o"))
	if got.String() != want.String() {
		t.Error("the digest is not that of its files")
	}
	if err := got.Tree(root, "nothing", func(string, fs.DirEntry) bool { return false }); err == nil {
		t.Error("a folder that is not there")
	}
}
