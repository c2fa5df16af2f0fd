// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/patch"
	"holdfast/tools/build/testrepo"
)

const louder = testrepo.Louder

// TestExtract edits the tree, carries the edits back, and checks that the
// files of the repository are the ones expected, that the patches stay in
// normal form, and that the repository now makes the very tree.
func TestExtract(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(*testing.T, *testrepo.Repo) // before the tree is written
		edit  func(*testing.T, *testrepo.Repo)
		into  string
		wrote []string
		check func(*testing.T, *testrepo.Repo)
	}{
		{name: "nothing", edit: func(*testing.T, *testrepo.Repo) {}},
		{
			name:  "overlay file in an upstream package",
			edit:  func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/"+testrepo.Overlay, `"!"`, `"?"`) },
			wrote: []string{testrepo.Overlay},
		},
		{
			name: "overlay files changed, new and removed",
			edit: func(t *testing.T, r *testrepo.Repo) {
				r.Edit(t, srcDir+"/"+testrepo.OverlayPkg, `"ours"`, `"mine"`)
				r.Write(t, srcDir+"/pkg/ours/deep/new.go", "package deep\n")
				r.Write(t, srcDir+"/staging/src/k8s.io/api/core/holdfast.go", "package core\n")
				os.Remove(filepath.Join(r.Root, srcDir, "pkg/ours/ours_test.go"))
			},
			wrote: []string{testrepo.OverlayPkg, "pkg/ours/deep/new.go", "pkg/ours/ours_test.go", "staging/src/k8s.io/api/core/holdfast.go"},
			check: func(t *testing.T, r *testrepo.Repo) {
				if r.Exists("pkg/ours/ours_test.go") {
					t.Error("the removed overlay file is still there")
				}
			},
		},
		{
			name: "upstream file that a patch changes",
			edit: func(t *testing.T, r *testrepo.Repo) {
				r.Edit(t, srcDir+"/"+testrepo.Patched, "return 3", "return 1 + 2")
			},
			wrote: []string{louder},
			check: func(t *testing.T, r *testrepo.Repo) {
				for _, want := range []string{"+\treturn 1 + 2\n", `+	return Shout("hello")`, "Subject: [PATCH] louder: a change\n"} {
					if !strings.Contains(r.Read(t, louder), want) {
						t.Errorf("the patch lacks %q:\n%s", want, r.Read(t, louder))
					}
				}
			},
		},
		{
			name:  "upstream file that no patch changes, with a patch named",
			edit:  func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/"+testrepo.Plain, `"plain"`, `"fancy"`) },
			into:  testrepo.Version,
			wrote: []string{testrepo.Version},
		},
		{
			name: "file of a fork",
			edit: func(t *testing.T, r *testrepo.Repo) {
				r.Edit(t, srcDir+"/"+testrepo.ForkDir+"/codec.go", "ab_.", "ab-.")
			},
			wrote: []string{testrepo.Alphabet},
		},
		{
			name: "a file that the patch deletes stays deleted",
			setup: func(t *testing.T, r *testrepo.Repo) {
				raw, err := testrepo.Patch(testrepo.Louder2,
					patch.Change{Path: testrepo.Plain, Old: []byte(testrepo.Upstream[testrepo.Plain])},
					patch.Change{Path: "pkg/greet/greet_test.go", Old: []byte(testrepo.Upstream["pkg/greet/greet_test.go"]), New: []byte("package greet\n")})
				if err != nil {
					t.Fatal(err)
				}
				r.Write(t, testrepo.Louder2, string(raw))
			},
			edit: func(t *testing.T, r *testrepo.Repo) {
				if r.Exists(srcDir + "/" + testrepo.Plain) {
					t.Error("the patch did not delete the file")
				}
				r.Write(t, srcDir+"/pkg/greet/greet_test.go", "package greet\n\n// less\n")
			},
			wrote: []string{testrepo.Louder2},
		},
		{
			name: "two patches on one file: the last takes the edit, the first stays to the byte",
			setup: func(t *testing.T, r *testrepo.Repo) {
				second := strings.Replace(testrepo.LouderPatched, "return 2", "return 1 + 1", 1)
				raw, err := testrepo.Patch(testrepo.Louder2,
					patch.Change{Path: testrepo.Patched, Old: []byte(testrepo.LouderPatched), New: []byte(second)})
				if err != nil {
					t.Fatal(err)
				}
				r.Write(t, testrepo.Louder2, string(raw))
			},
			edit: func(t *testing.T, r *testrepo.Repo) {
				r.Edit(t, srcDir+"/"+testrepo.Patched, `Shout("hello")`, `Shout("hey")`)
			},
			wrote: []string{testrepo.Louder2},
		},
		{
			name: "a patch with the same effect in another form stays to the byte",
			setup: func(t *testing.T, r *testrepo.Repo) {
				// Two lines of context instead of one.
				r.Edit(t, louder, "@@ -4,3 +4,3 @@\n", "@@ -3,4 +3,4 @@\n // Word greets.\n")
			},
			edit: func(t *testing.T, r *testrepo.Repo) {
				// The same edit on both sides.
				r.Edit(t, srcDir+"/"+testrepo.Patched, `Shout("hello")`, `Shout("hey")`)
				r.Edit(t, louder, `Shout("hello")`, `Shout("hey")`)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := testrepo.New(t)
			if tc.setup != nil {
				tc.setup(t, r)
			}
			materialise(t, ours(t, r))
			tc.edit(t, r)
			tree := contents(t, ours(t, r).Dir())
			before := repoFiles(t, r)
			wrote, err := ours(t, r).Extract(tc.into)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(wrote)
			slices.Sort(tc.wrote)
			if !slices.Equal(wrote, tc.wrote) {
				t.Errorf("wrote %q, want %q", wrote, tc.wrote)
			}
			for p, c := range repoFiles(t, r) {
				if before[p] != c && !slices.Contains(tc.wrote, p) {
					t.Errorf("%s was changed", p)
				}
			}
			for _, b := range patchFaults(t, r) {
				if !strings.Contains(b, "more than one line of context") {
					t.Error(b)
				}
			}
			if tc.check != nil {
				tc.check(t, r)
			}
			if res := materialise(t, ours(t, r)); res.Written != 0 {
				t.Errorf("the next make: %+v: the repository does not make the edited tree", res)
			}
			sameAsFresh(t, r, ours(t, r))
			for p, c := range contents(t, ours(t, r).Dir()) {
				if tree[p] != c {
					t.Errorf("%s is not as it was edited", p)
				}
			}
		})
	}
}

// patchFaults is what is wrong with the patches of the base.
func patchFaults(t *testing.T, r *testrepo.Repo) []string {
	t.Helper()
	patches, err := patch.Load(r.Root, ours(t, r).Base.Fixes.Patches(testrepo.Name))
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, p := range patches {
		bad = append(bad, p.Check()...)
	}
	return bad
}

// repoFiles are the committed files.
func repoFiles(t *testing.T, r *testrepo.Repo) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{"pkg", "staging", "patches", "bases"} {
		for p, c := range r.Snapshot(t, dir) {
			_, c, _ = strings.Cut(c, " ")
			out[dir+"/"+p] = c
		}
	}
	return out
}

// TestExtractGOPATH has two overlay folders that both cover the whole tree.
func TestExtractGOPATH(t *testing.T) {
	r := testrepo.New(t)
	tr := &Tree{Base: r.Base(t, testrepo.GOPATHName), Variant: base.Ours}
	materialise(t, tr)
	dir, err := filepath.Rel(r.Root, tr.Dir())
	if err != nil {
		t.Fatal(err)
	}
	r.Edit(t, dir+"/pkg/carried/carried.go", "package carried", "package carried // 2")
	r.Edit(t, dir+"/pkg/compat/compat.go", "package compat", "package compat // 2")
	r.Write(t, dir+"/pkg/fresh/fresh.go", "package fresh\n")
	wrote, err := tr.Extract("")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(wrote)
	const o = testrepo.GOPATHOverlay + "/"
	if want := []string{o + "pkg/carried/carried.go", o + "pkg/compat/compat.go", o + "pkg/fresh/fresh.go"}; !slices.Equal(wrote, want) {
		t.Errorf("wrote %q, want %q", wrote, want)
	}
	sameAsFresh(t, r, tr)
}

// TestExtractRefuses: nothing is written when one edit cannot be carried back.
func TestExtractRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edit  func(*testing.T, *testrepo.Repo)
		into  string
		code  int
		parts []string
	}{
		{"upstream file without a patch", func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/"+testrepo.Plain, "plain.", "fancy.") },
			"", 1, []string{testrepo.Plain, "make patches-extract PATCH="}},
		{"a patch that is not in the series", func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/"+testrepo.Plain, "plain.", "fancy.") },
			"patches/louder/v1.9.11/0299.patch", 2, []string{"no patch patches/louder/v1.9.11/0299.patch"}},
		{"removed upstream file", func(t *testing.T, r *testrepo.Repo) { os.Remove(filepath.Join(r.Root, srcDir, testrepo.Plain)) },
			"", 1, []string{testrepo.Plain, "was removed", "make discard-edits"}},
		{"go.mod of the tree", func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/go.mod", "go 1.20", "go 1.26") },
			"", 1, []string{"go.mod", "written by make"}},
		{"go.mod of a staging repository", func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, srcDir+"/staging/src/k8s.io/api/go.mod", "go 1.20", "go 1.26")
		}, "", 1, []string{"staging/src/k8s.io/api/go.mod", "written by make"}},
		{"new file outside of the overlay", func(t *testing.T, r *testrepo.Repo) { r.Write(t, srcDir+"/cmd/new/main.go", "package main\n") },
			"", 1, []string{"cmd/new/main.go", "no fix of base v1.9.11", "fix.json"}},
		{"all of a patch is undone", func(t *testing.T, r *testrepo.Repo) {
			r.Write(t, srcDir+"/"+testrepo.Patched, testrepo.Upstream[testrepo.Patched])
		}, "", 1, []string{louder, "remove the file"}},
		{"overlay file changed on both sides", func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, srcDir+"/"+testrepo.OverlayPkg, `"ours"`, `"mine"`)
			r.Edit(t, testrepo.OverlayPkg, `"ours"`, `"theirs"`)
		}, "", 1, []string{testrepo.OverlayPkg, "nothing was changed"}},
		{"overlay file changed and gone from the repository", func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, srcDir+"/"+testrepo.OverlayPkg, `"ours"`, `"mine"`)
			os.Remove(filepath.Join(r.Root, testrepo.OverlayPkg))
		}, "", 1, []string{testrepo.OverlayPkg, "nothing was changed"}},
		{"patched file changed on both sides", func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, srcDir+"/"+testrepo.Patched, "return 3", "return 1 + 2")
			r.Edit(t, louder, `Shout("hello")`, `Shout("hey")`)
		}, "", 1, []string{testrepo.Patched, louder, "nothing was changed"}},
		{"no tree", func(t *testing.T, r *testrepo.Repo) { os.RemoveAll(filepath.Join(r.Root, "_output")) }, "", 1, []string{srcDir, "make source"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := testrepo.New(t)
			materialise(t, ours(t, r))
			tc.edit(t, r)
			if r.Exists("_output") {
				// An edit that could be carried back is not, on its own.
				r.Write(t, srcDir+"/pkg/ours/aaa.go", "package ours\n")
			}
			before := repoFiles(t, r)
			wrote, err := ours(t, r).Extract(tc.into)
			refused(t, err, tc.code, tc.parts...)
			if len(wrote) > 0 {
				t.Errorf("wrote %q", wrote)
			}
			for p, c := range repoFiles(t, r) {
				if before[p] != c {
					t.Errorf("%s was changed", p)
				}
			}
		})
	}
}

func TestNormalise(t *testing.T) {
	r := testrepo.New(t)
	want := r.Read(t, louder)
	for name, denormalise := range map[string]func(string) string{
		"context": func(p string) string {
			return strings.Replace(p, "@@ -4,3 +4,3 @@\n", "@@ -3,4 +3,4 @@\n // Word greets.\n", 1)
		},
		"function name": func(p string) string { return strings.Replace(p, "@@ -4,3 +4,3 @@", "@@ -4,3 +4,3 @@ func Word()", 1) },
		"signature":     func(p string) string { return p + "-- \n2.39.5\n\n" },
		"author": func(p string) string {
			return strings.Replace(p, "From: Holdfast developers <developers@holdfast.invalid>", "From: A Person <a@example.com>", 1)
		},
		"commit": func(p string) string { return strings.Replace(p, "From 0000000", "From 1234567", 1) },
		"diffstat": func(p string) string {
			return strings.Replace(p, "---\ndiff", "---\n pkg/greet/greet.go | 2 +-\n\ndiff", 1)
		},
		"index": func(p string) string {
			i := strings.Index(p, "\nindex ")
			return p[:i+7+8] + p[i+7+40:]
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.Write(t, louder, denormalise(want))
			if r.Read(t, louder) == want {
				t.Fatal("the case changes nothing")
			}
			if bad := patchFaults(t, r); len(bad) != 1 {
				t.Errorf("the check finds %q", bad)
			}
			wrote, err := ours(t, r).Normalise()
			if err != nil || !slices.Equal(wrote, []string{louder}) {
				t.Errorf("wrote %q, %v", wrote, err)
			}
			if got := r.Read(t, louder); got != want {
				t.Errorf("got\n%s", got)
			}
		})
	}
	if wrote, err := ours(t, r).Normalise(); err != nil || len(wrote) != 0 {
		t.Errorf("a series in normal form: wrote %q, %v", wrote, err)
	}
}
