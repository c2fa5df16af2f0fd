// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testrepo makes a small Holdfast checkout for tests of the tool: a
// base v1.9.11 in module mode and one v1.2.0 in GOPATH mode, of an invented
// upstream with a fork, a staging repository, an overlay and patches,
// served by a module proxy that is a folder. No test that uses it needs the
// network or the real upstream.
package testrepo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/patch"
)

// What the checkout is made of.
const (
	Name       = "v1.9.11" // the base in module mode
	GOPATHName = "v1.2.0"  // the base in GOPATH mode
	Module     = "example.com/up"
	Fork       = "example.com/fork"
	ForkDir    = "third_party/example.com/fork"
	Binary     = "hello"
	// Patched is an upstream file that Louder changes, Plain one that no patch
	// changes.
	Patched = "pkg/greet/greet.go"
	Plain   = "pkg/plain/plain.go"
	// Overlay is a file of ours in an upstream package, OverlayPkg one in a
	// package of its own.
	Overlay    = "pkg/greet/holdfast_extra.go"
	OverlayPkg = "pkg/ours/ours.go"
	// The patches of the product, and a further file for one of Louder's fix.
	Version = "patches/version/v1.9.11/0201.patch"
	Louder  = "patches/louder/v1.9.11/0210.patch"
	Louder2 = "patches/louder/v1.9.11/0220.patch"
	// The toolchain's.
	Alphabet = "patches/toolchain/fork-alphabet/v1.9.11/0001.patch"
	DepWord  = "patches/toolchain/dep-word/v1.2.0/0001.patch"
	DepOther = "patches/toolchain/dep-other/v1.2.0/0002.patch"
	// GOPATHOverlay is the folder of the files that only the base in GOPATH mode has.
	GOPATHOverlay = "bases/v1.2.0/overlay"
)

// Repo is one checkout.
type Repo struct {
	Root     string
	Proxy    string // folder of the module proxy
	ModCache string
}

// Upstream are the files of the invented upstream module by their paths.
var Upstream = map[string]string{
	"cmd/hello/main.go": `package main

import (
	"fmt"

	"example.com/up/pkg/greet"
	"example.com/up/pkg/plain"
	"example.com/up/pkg/version"
)

func main() { fmt.Println(version.Get(), greet.Word(), plain.Word()) }
`,
	"pkg/version/base.go": `package version

var (
	gitVersion   = "v0.0.0-master"
	gitMajor     = ""
	gitMinor     = ""
	gitCommit    = "none"
	gitTreeState = "not a git tree"
	buildDate    = "1970-01-01T00:00:00Z"
)

func Get() string { return gitVersion + " " + gitMajor + "." + gitMinor + " " + gitCommit + " " + gitTreeState + " " + buildDate }
`,
	Patched: `package greet

// Word greets.
func Word() string {
	return "hello"
}

func one() int {
	return 1
}

func two() int {
	return 2
}

func three() int {
	return 3
}
`,
	"pkg/greet/greet_test.go": `package greet

import "testing"

func TestNumbers(t *testing.T) {
	if one()+two() != three() {
		t.Fatal("sum")
	}
}
`,
	Plain: `package plain

// Word is plain.
func Word() string {
	return "plain"
}
`,
	"pkg/plain/notes.txt":                "not Go\n",
	"hack/run.sh":                        "#!/bin/sh\n",
	"staging/src/k8s.io/api/core/doc.go": "package core\n",
}

var forkFiles = map[string]string{
	"codec.go": "package fork\n\nconst Alphabet = \"ab__\"\n",
}

// What the patches make of upstream's files.
var (
	forkPatched    = strings.Replace(forkFiles["codec.go"], "ab__", "ab_.", 1)
	versionPatched = strings.Replace(Upstream["pkg/version/base.go"], `"none"`, `"$Format:%H$"`, 1)
	// LouderPatched is Patched as Louder leaves it.
	LouderPatched = strings.Replace(Upstream[Patched], `return "hello"`, `return Shout("hello")`, 1)
)

// OverlayFiles are the checkout's files of ours.
var OverlayFiles = map[string]string{
	Overlay:                 header + "package greet\n\nfunc Shout(s string) string { return s + \"!\" }\n",
	OverlayPkg:              header + "package ours\n\nconst Name = \"ours\"\n",
	"pkg/ours/ours_test.go": header + "package ours\n\nimport \"testing\"\n\nfunc TestName(t *testing.T) {\n\tif Name != \"ours\" {\n\t\tt.Fatal(Name)\n\t}\n}\n",
}

const header = "// Copyright The Holdfast Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n"

// New makes a checkout in a folder of t's and sets the environment in which
// the go command sees the checkout's proxy and an empty module cache.
func New(t testing.TB) *Repo {
	t.Helper()
	// Not t.TempDir, which has the test's name in it: a comma splits GOPROXY.
	dir, err := os.MkdirTemp("", "holdfast-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		MakeWritable(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tt, ok := t.(interface{ Setenv(key, value string) }); ok {
		for _, e := range r.Env() {
			k, v, _ := strings.Cut(e, "=")
			tt.Setenv(k, v)
		}
	}
	return r
}

// Env is the environment in which the go command finds the checkout's modules
// and nothing else.
func (r *Repo) Env() []string {
	return []string{"GOPROXY=file://" + r.Proxy, "GOMODCACHE=" + r.ModCache, "GONOSUMDB=*", "GOSUMDB=off", "GOFLAGS=", "GONOPROXY=none", "GOPRIVATE="}
}

// Create makes a checkout below dir.
func Create(dir string) (*Repo, error) {
	r := &Repo{Root: filepath.Join(dir, "repo"), Proxy: filepath.Join(dir, "proxy"), ModCache: filepath.Join(dir, "modcache")}
	sum, err := r.Publish(Module, Name, Upstream)
	if err != nil {
		return nil, err
	}
	forkSum, err := r.Publish(Fork, "v1.0.0", forkFiles)
	if err != nil {
		return nil, err
	}
	// The GOPATH base carries its dependency inside the module.
	old := map[string]string{"Godeps/_workspace/src/example.com/dep/dep_js.go": "package dep\n\nconst Word = \"dep\"\n"}
	for p, c := range Upstream {
		if !strings.HasPrefix(p, "staging/") {
			old[p] = c
		}
	}
	old["cmd/hello/main.go"] = strings.ReplaceAll(strings.Replace(old["cmd/hello/main.go"], "import (\n", "import (\n\t\"example.com/dep\"\n", 1), "plain.Word())", "plain.Word(), dep.Word)")
	oldSum, err := r.Publish(Module, GOPATHName, old)
	if err != nil {
		return nil, err
	}

	files := map[string]string{
		"go.mod": `module holdfast

go 1.26

ignore ./pkg/greet

tool example.com/up/cmd/hello

require (
	example.com/fork v1.0.0
	example.com/up v1.9.11
	k8s.io/api v0.0.0
)

replace (
	example.com/fork => ./_output/src/v1.9.11/ours/third_party/example.com/fork
	example.com/up => ./_output/src/v1.9.11/ours
	k8s.io/api => ./_output/src/v1.9.11/ours/staging/src/k8s.io/api
)
`,
		"go.sum":                                  "",
		"tools/go.mod":                            "module holdfast/tools\n\ngo 1.26\n",
		"tools/tools.go":                          "package tools\n",
		".gitignore":                              "_output/\nvendor/\n",
		"bases/v1.9.11/known-failures.txt":        "# none\n",
		GOPATHOverlay + "/pkg/compat/compat.go":   header + "package compat\n",
		GOPATHOverlay + "/pkg/carried/carried.go": header + "package carried\n",
	}
	for p, c := range OverlayFiles {
		files[p] = c
	}
	for file, c := range contents {
		raw, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return nil, err
		}
		files[file] = string(raw) + "\n"
	}
	const depFile = "Godeps/_workspace/src/example.com/dep/dep.go"
	dep := old["Godeps/_workspace/src/example.com/dep/dep_js.go"]
	dep1 := strings.Replace(dep, `"dep"`, `"dep1"`, 1)
	for name, c := range map[string]patch.Change{
		Version:  {Path: "pkg/version/base.go", Old: []byte(Upstream["pkg/version/base.go"]), New: []byte(versionPatched)},
		Louder:   {Path: Patched, Old: []byte(Upstream[Patched]), New: []byte(LouderPatched)},
		Alphabet: {Path: ForkDir + "/codec.go", Old: []byte(forkFiles["codec.go"]), New: []byte(forkPatched)},
		DepWord:  {Path: depFile, Old: []byte(dep), New: []byte(dep1)},
		DepOther: {Path: depFile, Old: []byte(dep1), New: []byte(strings.Replace(dep1, "dep1", "dep2", 1))},
	} {
		raw, err := Patch(name, c)
		if err != nil {
			return nil, err
		}
		files[name] = string(raw)
	}
	for p, c := range files {
		if err := r.write(p, c); err != nil {
			return nil, err
		}
	}
	if err := r.writeBase(&base.Base{
		Name: Name, Module: Module, Version: Name, Sum: sum, Mode: base.ModeModule, Release: Name + "+holdfast.1",
		GitCommit: "c0ffee", BuildDate: "2018-01-01T00:00:00Z", Default: true,
		Variants: map[string]base.VariantSpec{"stock": {}, "ours": {Product: true}},
		Forks:    []base.Fork{{Module: Fork, Version: "v1.0.0", Sum: forkSum, Dir: ForkDir}},
		Binaries: map[string]base.Binary{Binary: {Package: "./cmd/hello", DropIn: true}, "other": {Package: "./cmd/hello"}},
	}); err != nil {
		return nil, err
	}
	return r, r.writeBase(&base.Base{
		Name: GOPATHName, Module: Module, Version: GOPATHName, Sum: oldSum, Mode: base.ModeGOPATH, Release: GOPATHName + "+holdfast.1",
		Variants: map[string]base.VariantSpec{"stock": {}, "ours": {Product: true},
			"naive": {Minus: []string{"dep-other"}}},
		Renames: []base.Rename{{From: "Godeps/_workspace/src/example.com/dep/dep_js.go", To: depFile}},
		Lang:    "go1.20", LangPackages: []string{"example.com/..."},
		Binaries: map[string]base.Binary{Binary: {Package: "./cmd/hello", DropIn: true}},
	})
}

// contents are the checkout's fix.json files.
var contents = map[string]fixes.Content{
	"patches/louder/fix.json":             {Kind: fixes.Own, Spec: fixes.Spec{Overlay: []string{"pkg/greet/holdfast_*.go"}}},
	"patches/ours/fix.json":               {Kind: fixes.Own, Bases: overlay(Name, "pkg/ours/**", "pkg/notes/**", "pkg/plain/**", "pkg/tests/**", "pkg/types/**", "pkg/zz/**", "staging/**")},
	"patches/version/fix.json":            {Kind: fixes.Version},
	"patches/toolchain/dep-word/fix.json": {Spec: fixes.Spec{Overlay: []string{"pkg/compat/**"}}},
	"patches/carried/fix.json":            {Kind: fixes.Own, Bases: overlay(GOPATHName, "pkg/carried/**", "pkg/fresh/**")},
}

func overlay(base string, files ...string) map[string]fixes.Spec {
	return map[string]fixes.Spec{base: {Overlay: files}}
}

// Form is that of a fix in a base, with these gates and their defaults, and labs with their gates.
func Form(base string, gates map[string]bool, labs map[string][]string) *fixes.Form {
	f := &fixes.Form{Base: base, Spec: fixes.Spec{Gates: map[string]fixes.Gate{}, Labs: labs}}
	for g, on := range gates {
		f.Gates[g] = fixes.Gate{Default: on, About: "is of a test."}
	}
	return f
}

// EditFix changes the fix.json of a fix below patches/, or makes a new one.
func (r *Repo) EditFix(t testing.TB, name string, edit func(*fixes.Content)) {
	t.Helper()
	file, c := fixes.Dir+"/"+name+"/"+fixes.File, &fixes.Content{}
	if r.Exists(file) {
		if err := json.Unmarshal([]byte(r.Read(t, file)), c); err != nil {
			t.Fatal(err)
		}
	}
	edit(c)
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	r.Write(t, file, string(raw)+"\n")
}

// Patch is a patch file in normal form that makes the changes.
func Patch(file string, changes ...patch.Change) ([]byte, error) {
	fix := path.Base(path.Dir(path.Dir(file)))
	p, err := patch.Parse(file, []byte(`From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Holdfast developers <developers@holdfast.invalid>
Date: Sat, 21 Nov 2026 00:00:00 +0000
Subject: [PATCH] `+fix+`: a change

What was wrong and why this is the fix.

Upstream-Status: Pending
Origin: holdfast
Bug: none
Remove-When: the base goes
---
diff --git a/x b/x
--- a/x
+++ b/x
@@ -1 +1 @@
-a
+b
`))
	if err != nil {
		return nil, err
	}
	return p.Render(changes)
}

// Base loads the base called name.
func (r *Repo) Base(t testing.TB, name string) *base.Base {
	t.Helper()
	b, err := base.Load(r.Root, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// EditBase changes base.json of the base called name.
func (r *Repo) EditBase(t testing.TB, name string, edit func(*base.Base)) {
	t.Helper()
	b := r.Base(t, name)
	edit(b)
	if err := r.writeBase(b); err != nil {
		t.Fatal(err)
	}
}

func (r *Repo) writeBase(b *base.Base) error {
	raw, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return r.write(path.Join("bases", b.Name, "base.json"), string(raw))
}

// Write puts a file into the checkout.
func (r *Repo) Write(t testing.TB, file, content string) {
	t.Helper()
	if err := r.write(file, content); err != nil {
		t.Fatal(err)
	}
}

// Edit replaces old by new, once, in a file of the checkout.
func (r *Repo) Edit(t testing.TB, file, old, new string) {
	t.Helper()
	c := r.Read(t, file)
	if !strings.Contains(c, old) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	r.Write(t, file, strings.Replace(c, old, new, 1))
}

func (r *Repo) write(file, content string) error {
	file = filepath.Join(r.Root, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644)
}

// Read returns a file of the checkout.
func (r *Repo) Read(t testing.TB, file string) string {
	t.Helper()
	c, err := os.ReadFile(filepath.Join(r.Root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(c)
}

// Exists says whether the checkout has the file.
func (r *Repo) Exists(file string) bool {
	_, err := os.Lstat(filepath.Join(r.Root, filepath.FromSlash(file)))
	return err == nil
}

// Snapshot is the content of all files below folder of the checkout, and when
// each was written, by their paths.
func (r *Repo) Snapshot(t testing.TB, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := filepath.Join(r.Root, filepath.FromSlash(folder))
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		c, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		out[filepath.ToSlash(rel)] = fmt.Sprintf("%s %s", info.ModTime().Format(time.RFC3339Nano), c)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

// Publish puts a module version into the proxy and returns its sum.
func (r *Repo) Publish(mod, version string, files map[string]string) (string, error) {
	dir := filepath.Join(r.Proxy, filepath.FromSlash(mod), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	m := module.Version{Path: mod, Version: version}
	var zf []zip.File
	for p, c := range files {
		zf = append(zf, zipFile{p, c})
	}
	sort.Slice(zf, func(i, j int) bool { return zf[i].Path() < zf[j].Path() })
	var buf bytes.Buffer
	if err := zip.Create(&buf, m, zf); err != nil {
		return "", err
	}
	name := filepath.Join(dir, version)
	for ending, c := range map[string][]byte{
		".zip":  buf.Bytes(),
		".mod":  []byte("module " + mod + "\n"),
		".info": []byte(`{"Version":"` + version + `","Time":"2018-01-01T00:00:00Z"}`),
	} {
		if err := os.WriteFile(name+ending, c, 0o644); err != nil {
			return "", err
		}
	}
	return dirhash.HashZip(name+".zip", dirhash.Hash1)
}

// MakeWritable lets a user who is not root remove a module cache.
func MakeWritable(dir string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(p, 0o755)
		}
		return nil
	})
}

type zipFile struct{ path, content string }

func (f zipFile) Path() string                { return f.path }
func (f zipFile) Lstat() (fs.FileInfo, error) { return f, nil }
func (f zipFile) Open() (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(f.content)), nil
}
func (f zipFile) Name() string       { return path.Base(f.path) }
func (f zipFile) Size() int64        { return int64(len(f.content)) }
func (f zipFile) Mode() fs.FileMode  { return 0o644 }
func (f zipFile) ModTime() time.Time { return time.Time{} }
func (f zipFile) IsDir() bool        { return false }
func (f zipFile) Sys() any           { return nil }
