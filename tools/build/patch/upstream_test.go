// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkout is the root of the repository.
func checkout(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

var (
	upstreamName = regexp.MustCompile(`^[0-9]{4}-((?:client-go-)?v[0-9.]+)-.*\.patch$`)
	changedFile  = regexp.MustCompile(`(?m)^(?:\+\+\+ b|--- a)/(.*)$`)
	recipe       = regexp.MustCompile(`(?m)^\$ (hack/upstream-patch\.sh .*)$`)
)

// upstreamPatches are the patches in the form for upstream, those of one folder and release together.
func upstreamPatches(t *testing.T) map[string][]string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(checkout(t), "patches", "*", "upstream", "*.patch"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%d patches, %v", len(all), err)
	}
	slices.Sort(all)
	out := map[string][]string{}
	for _, p := range all {
		m := upstreamName.FindStringSubmatch(filepath.Base(p))
		if m == nil {
			t.Errorf("%s: the name has no release", p)
			continue
		}
		key := filepath.Base(filepath.Dir(filepath.Dir(p))) + " " + m[1]
		out[key] = append(out[key], p)
	}
	return out
}

// apply runs the script of the recipes in a folder that the repository ignores or knows, where
// git apply by itself does nothing.
func apply(t *testing.T, env []string, patches ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(checkout(t), "hack", "upstream-patch.sh"), append([]string{"apply"}, patches...)...)
	cmd.Dir = filepath.Join(checkout(t), "patches")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestUpstreamPatches: each patch changes each of its files in the release that its name says.
func TestUpstreamPatches(t *testing.T) {
	for name, patches := range upstreamPatches(t) {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("GOPROXY") == "off" {
				t.Skip("the release comes through the module proxy, which is off")
			}
			out, err := apply(t, nil, patches...)
			if err != nil && strings.Contains(out, "run make source") {
				t.Skip("there is no tree of make source")
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, p := range patches {
				text, err := os.ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range changedFile.FindAllStringSubmatch(string(text), -1) {
					if !strings.Contains(out, "diff -ruN a/"+m[1]+" b/"+m[1]+"\n") {
						t.Errorf("%s: the recipe does not show a change of %s", filepath.Base(p), m[1])
					}
				}
			}
		})
	}
}

// TestNothingApplied: a git that succeeds and changes nothing, as inside a checkout, is noticed.
func TestNothingApplied(t *testing.T) {
	if os.Getenv("GOPROXY") == "off" {
		t.Skip("the release comes through the module proxy, which is off")
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, patches := range upstreamPatches(t) {
		if !strings.HasPrefix(name, "reflector-monotonic-rv client-go") {
			continue
		}
		if out, err := apply(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, patches...); err == nil || !strings.Contains(out, "has changed nothing in") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	t.Error("there is no patch of client-go")
}

// TestUpstreamRecipes: the pages' recipes name patches that are there, and none is applied by
// hand in a folder of this checkout.
func TestUpstreamRecipes(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(checkout(t), "patches", "*", "upstream", "README.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	recipes := 0
	for _, page := range append(pages, filepath.Join(checkout(t), "docs", "design", "upstream.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "$ git apply ../") {
			t.Errorf("%s applies a patch inside of the checkout", page)
		}
		for _, m := range recipe.FindAllStringSubmatch(string(text), -1) {
			for _, pattern := range strings.Fields(m[1])[2:] {
				recipes++
				if found, err := filepath.Glob(filepath.Join(checkout(t), pattern)); err != nil || len(found) == 0 {
					t.Errorf("%s: no file is %s", page, pattern)
				}
			}
		}
	}
	if recipes < 5 {
		t.Errorf("%d recipes", recipes)
	}
}
