// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func files(kv ...string) *repo {
	r := &repo{files: map[string][]byte{}}
	for i := 0; i < len(kv); i += 2 {
		r.files[kv[i]] = []byte(kv[i+1])
	}
	return r
}

// found checks that the faults are those expected, by a part of each, in order.
func found(t *testing.T, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestFindsStrayFiles(t *testing.T) {
	found(t, strayFiles(files("README.md", "x\n", "docs/vendoring.md", "x\n")))
	found(t, strayFiles(files("tools/vendor/a/a.go", "package a\n", "_output/x", "x", "big.json", strings.Repeat("x", maxSize+1), "kubelet", "\x7fELF\x00")),
		"_output/x is generated", "big.json has 262145 bytes", "kubelet is not text", "tools/vendor/a/a.go is generated")
}

func TestFindsCopies(t *testing.T) {
	var upstream, others strings.Builder
	for i := range 40 {
		fmt.Fprintf(&upstream, "\tupstreamCallNumber%d(withItsArgument)\n", i)
		fmt.Fprintf(&others, "\tanotherCallNumber%d(withAnArgument)\n", i)
	}
	lines := strings.SplitAfter(upstream.String(), "\n")
	find := func(ours string) []string {
		c := newCopies(files("pkg/a.go", ours, "LICENSE", upstream.String()))
		c.one("v1/pkg/up.go", []byte(upstream.String()))
		c.one("v1/pkg/other.go", []byte(others.String()))
		return c.faults
	}
	found(t, find(upstream.String()), "pkg/a.go is upstream's v1/pkg/up.go")
	found(t, find(strings.ReplaceAll(upstream.String(), "\t", "        ")), "pkg/a.go is upstream's v1/pkg/up.go")
	found(t, find("// our header, which is new and long enough to count\n"+upstream.String()), "nearly is upstream's v1/pkg/up.go: 40 of its 41 lines")
	slices.Reverse(lines)
	found(t, find(strings.Join(lines, "")), "nearly is upstream's")
	found(t, find(strings.Join(lines[:20], "")+others.String()[:160]), "nearly is upstream's v1/pkg/up.go")
	found(t, find(strings.Join(lines[:10], "")))
	found(t, find("package a\n\nfunc A() error {\n\treturn nil\n}\n"))
}

func TestFindsDeadLinks(t *testing.T) {
	found(t, deadLinks(files(
		"README.md", "[a](docs/a.md) [b](docs/a.md#what-is-it-for-two) [dir](docs) [dir/](docs/) [self](#top--bottom) [web](https://x.invalid/y) [mail](mailto:a@x.invalid)\n"+
			"`[code](nowhere.md)`\n\n```\n[code](nowhere.md)\n# no heading\n```\n\n# Top & bottom\n[again](docs/a.md#twice-1)\n[ref]: docs/a.md\n",
		"docs/a.md", "## What is `it` for, [two](../README.md)?\n\n# Twice\n\n# Twice\n")))
	found(t, deadLinks(files(
		"README.md", "[a](docs/b.md) [b](docs/a.md#none) [self](#none) [title](gone.md \"title\") ![img](img.png)\n\n```\n# none\n```\n[ref]: docs/c.md\n",
		"docs/a.md", "up: [x](/README.md) [y](../docs/a.md)\n")),
		"README.md: the link docs/b.md leads nowhere", "README.md: the link docs/a.md#none: docs/a.md has no such heading", "README.md: the link #none", "gone.md", "img.png", "docs/c.md",
		"docs/a.md: the link /README.md leads nowhere")
}

func TestFindsScripts(t *testing.T) {
	for p, c := range map[string]string{"a.sh": "", "hack/x": "#!/usr/bin/env bash\n", ".ci/run": "#!/bin/sh\n", "y": "#! /bin/dash -e\n"} {
		if !isScript(p, []byte(c)) {
			t.Errorf("%s is not taken for a script", p)
		}
	}
	for p, c := range map[string]string{"a.go": "package a\n", "b.py": "#!/usr/bin/env python3\n", "c": "text about #!/bin/sh\n"} {
		if isScript(p, []byte(c)) {
			t.Errorf("%s is taken for a script", p)
		}
	}
	found(t, scriptFaults("a", []byte("#!/usr/bin/env bash\n# What it does.\n\nset -euo pipefail\ntrue\n")))
	found(t, scriptFaults("a", []byte("#!/bin/sh\nset -eu\n")), "does not begin with #!/usr/bin/env bash")
	found(t, scriptFaults("a", []byte("#!/usr/bin/env bash\ncd x\nset -euo pipefail\n")), `first command is "cd x"`)
	found(t, scriptFaults("a", []byte("#!/usr/bin/env bash\nset -eu\n")), `first command is "set -eu"`)
	found(t, scriptFaults("a", []byte("#!/usr/bin/env bash\n# nothing\n")), "does nothing")
}

func TestFindsGoFaults(t *testing.T) {
	found(t, goFaults(files("a.go", goHeader+"\npackage a\n", "b.go", "//go:build linux\n\n"+goHeader+"\npackage b\n", "c.txt", "x\n")))
	found(t, goFaults(files("a.go", "package a\n", "b.go", goHeader+"\npackage b\nvar  x int\n", "c.go", goHeader+"\npackage\n", "d.go", "// Copyright The Kubernetes Authors.\n\npackage d\n")),
		"a.go does not begin with our licence header", "b.go is not as gofmt writes it", "c.go: ", "d.go does not begin with our licence header")
}

func TestFindsTextFaults(t *testing.T) {
	found(t, textFaults(files(
		"a.go", "ctx := context.TO"+"DO()\n",
		"a.md", "the workdir is $WORK/x, /workspace and a/root/b, and a kubelet's /var/lib/kubelet; proxy and root are words\n",
		"p.patch", " // TO"+"DO of upstream's\n-// FIX"+"ME\n+// done\n",
		"r.json", "{}",
	)))
	found(t, textFaults(files(
		"a.go", "// TO"+"DO: later\n\nx := \"/ro"+"ot/go/pkg\"\n",
		"b.md", "cd /wo"+"rk/main\n/ho"+"me/joe/x\n",
		"c.txt", "https://pro"+"xy.gol"+"ang.org\nregis"+"try.npm"+"js.org",
		"p.patch", "+// FIX"+"ME\n",
	)), "a.go:1: \"TO"+"DO\"", "a.go:3: ", "b.md:1: ", "b.md:2: ", "c.txt:1: ", "c.txt:2: ", "c.txt does not end with a newline", "p.patch:1: ")
}

func TestFindsGoneTests(t *testing.T) {
	found(t, goneTests(files(
		"a_test.go", "func TestSomething(t *testing.T) {}\nfunc BenchmarkIt(b *testing.B) {}\n",
		"b.md", "`go test -run Some ./x`, `go test -run xxx -bench It/sub -benchtime 3x`, `-run '^TestSomething$'`\n",
		"c.md", "`go test -run Cost -v`, `-fuzz FuzzIt`\n",
	)), "c.md tells to run Cost", "c.md tells to run FuzzIt")
}

func TestFindsMakefileFaults(t *testing.T) {
	found(t, makefileFaults(".PHONY: all \\\n\tclean\n\nX := 1\nall: tool.bin ## build\n\ttrue\n\nclean: ## remove\n\trm x\n"))
	found(t, makefileFaults(".PHONY: all gone\nall:\n\ttrue\nclean: ## remove\n\trm x\n"),
		".PHONY names gone", "target all has no help text", "target clean is not in .PHONY")
	for text, want := range map[string]string{
		"run `make lab LAB=x`": "lab", "`make OFFLINE=1 check`": "check", "$ make\n": "", "$ make test\n": "test", "(`make BASE=v1.2.0`)": "", "`make OFFLINE=1` builds": "", "to make sure": "",
	} {
		m := makeCallRE.FindStringSubmatch(text)
		if got := strings.Join(m[min(1, len(m)):], ""); got != want {
			t.Errorf("%q: target %q, want %q", text, got, want)
		}
	}
}

func TestFindsUpwardImports(t *testing.T) {
	layers := []string{"labkit/a", "labkit/b", "labkit"}
	below := map[string][]string{"holdfast/tools/labkit/a": {"fmt"}, "holdfast/tools/labkit/b": {"holdfast/tools/labkit/a", "holdfast/tools/build/base"},
		"holdfast/tools/labkit": {"holdfast/tools/labkit/a"}}
	found(t, layerFaults(layers, below))
	found(t, layerFaults(layers, map[string][]string{"holdfast/tools/labkit/a": {"holdfast/tools/labkit"}, "holdfast/tools/labkit": nil, "holdfast/tools/labkit/x": nil}),
		"labkit/a imports holdfast/tools/labkit, which is above", "labkit/x has no place", "kitLayers has labkit/b")
	found(t, floorFaults(map[string][]string{"holdfast/tools/build/a": {"fmt", "holdfast/tools/build/b"}, "holdfast/tools/verify/c": {"holdfast/tools/build/a", "holdfast/tools/labs/x"}}))
	found(t, floorFaults(map[string][]string{"holdfast/tools/labs/x": {"holdfast/tools/record/y"}, "holdfast/tools/internal/z": nil}),
		"internal/z is on no floor", "labs/x imports holdfast/tools/record/y, which is on a floor above")
}
