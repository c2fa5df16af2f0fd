// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestForPython(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"a list after text", "text\n* a\n  more\n* b\n", "text\n\n* a\n    more\n* b\n"},
		{"nested", "1. a\n\n   text\n   * b\n     more\n\nend\n", "1. a\n\n    text\n\n    * b\n        more\n\nend\n"},
		{"code in an item", "* a:\n\n  ```bash admin x\n  x\n    y\n  ```\n", "* a:\n\n    ```bash\n    x\n      y\n    ```\n"},
		{"code that looks like a list", "```\ntext\n* a\n```\n", "```\ntext\n* a\n```\n"},
		{"a table after text", "text\n| a |\n|---|\n", "text\n\n| a |\n|---|\n"},
	} {
		if got := forPython(tc.in); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, tc.want)
		}
	}
}

func TestStage(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"README.md":            "[a](docs/a.md#b) [d](docs) [data](docs/x.json) [web](https://x.invalid/y) ![p](p.svg)\n",
		"docs/README.md":       "# D\n",
		"docs/a.md":            "# B\n",
		"docs/user/b.md":       "# U\n",
		"docs/x.json":          "{}\n",
		"docs/not-linked.json": "{}\n",
		"p.svg":                "<svg/>\n",
	} {
		if err := write(root, name, content); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "-C", root, "init", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dest := t.TempDir()
	pages, err := Stage(root, dest)
	if err != nil || !slices.Contains(pages, "docs/a.md") || slices.Contains(pages, "p.svg") {
		t.Fatalf("%v, %v", err, pages)
	}
	if got, err := os.ReadFile(filepath.Join(dest, "README.md")); err != nil || !strings.Contains(string(got), "[d](docs/README.md)") {
		t.Errorf("%v\n%s", err, got)
	}
	for file, there := range map[string]bool{"p.svg": true, "docs/x.json": true, "docs/not-linked.json": false, cssFile: true} {
		if _, err := os.Stat(filepath.Join(dest, file)); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %v", file, err, there)
		}
	}
	config := Config(pages, "IN", "OUT")
	if !strings.Contains(config, "docs_dir: IN\nsite_dir: OUT\n") || !strings.Contains(config, "font: false") || !strings.Contains(config, "extra_css: ["+cssFile+"]") || !strings.Contains(config, "- Operators:\n  - docs/user/b.md\n") {
		t.Errorf("the configuration:\n%s", config)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		if err := write(dir, name, content); err != nil {
			t.Fatal(err)
		}
	}
	put("index.html", `<h1 id="top">x</h1><a href="#top">a</a><a href="docs/">d</a><a href="docs/index.html#in">i</a><a href="https://x.invalid/">w</a><img src="p.svg" alt="dots"><script src="s.js"></script>`)
	put("docs/index.html", `<h2 id="in">y</h2><a href="../index.html">up</a>`)
	put("p.svg", "<svg/>")
	put("s.js", "")
	if bad, err := Check(dir); err != nil || len(bad) != 0 {
		t.Errorf("%v %q", err, bad)
	}
	put("bad.html", `<a href="gone.html">g</a><a href="index.html#none">n</a><img src="p.svg"><link rel="stylesheet" href="//fonts.invalid/f.css"><script src="https://x.invalid/s.js"></script>`)
	bad, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gone.html leads nowhere", "index.html has no such heading", "p.svg has no text", "fonts.invalid/f.css from elsewhere", "x.invalid/s.js from elsewhere"} {
		if !slices.ContainsFunc(bad, func(f string) bool { return strings.HasPrefix(f, "bad.html: ") && strings.Contains(f, want) }) {
			t.Errorf("%q is not found in %q", want, bad)
		}
	}
	if len(bad) != 5 {
		t.Errorf("%q", bad)
	}
	if _, err := Check(t.TempDir()); err == nil {
		t.Error("an empty folder has no faults")
	}
}
