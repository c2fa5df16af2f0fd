// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hashoracle compares the two ways in which Holdfast computes the hashes
// of old kubelets, the kubelet's own package hashcompat and kubectl-holdfast
// container-hash, with the real code of the old releases: a program is compiled
// with each release's own pkg/kubelet/container, API types and go-spew from their
// modules, and random containers go through all of them.
//
// They are compiled with today's Go, with one type of the standard library as
// the release's own Go had it: see bigWord.
package hashoracle

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"holdfast/tools/build/base"
	gobuilder "holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
)

//go:embed program.go.txt
var program string

//go:embed defaults.go.txt
var defaults string

// noDefaults is in its place for the other releases.
const noDefaults = `package main

import (
	"errors"

	"V1PACKAGE"
)

func defaulted(*v1.Container) (*v1.Container, error) { return nil, errors.New("not for this release") }
`

//go:embed typed.go.txt
var typedProgram string

type mod struct{ path, version, sum string }

// Release is an old release whose code is run.
type Release struct {
	// Generation is the release as the engines name it, "1.7".
	Generation string
	// Golden is the release in the golden data, "1.7.0".
	Golden string

	kubernetes mod
	v1         string // package of the API types
	// oldWord: upstream built the release with Go 1.7 or 1.8, see bigWord.
	oldWord bool
	// pins is the folder of the go.mod with the release's modules; empty: the root's.
	pins string
	// other has the modules that differ from that go.mod; go-spew is at
	// the revision that the release's own Godeps.json names.
	other []mod
	// defaults: the program can do what a kubelet does with a static pod, see defaults.go.txt.
	defaults bool
}

const (
	newV1 = "k8s.io/api/core/v1"
	oldV1 = "k8s.io/kubernetes/pkg/api/v1"
)

// Godeps.json of 1.6 and 1.7: go-spew 5215b55f46b2; of 1.8 and 1.9:
// 782f4967f2dc, as in the root's go.mod.
var oldSpew = mod{"github.com/davecgh/go-spew", "v0.0.0-20151105211317-5215b55f46b2", "h1:5zdDAMuB3gvbHB1m2BZT9+t9w+xaBmK3ehb7skDXcwM="}

// Releases are the releases that Run compares with, newest first.
var Releases = []Release{
	{Generation: "1.9", Golden: "1.9.11", kubernetes: mod{"k8s.io/kubernetes", "v1.9.11", "h1:PFbmFeh46oRlAFz2MvCEbTA3ur8GKTi+08ur4xtJB10="}, v1: newV1, defaults: true},
	{Generation: "1.8", Golden: "1.8.15", kubernetes: mod{"k8s.io/kubernetes", "v1.8.15", "h1:ONVF05Crp2Vb2KdX3l+DfVCuGROvCHk/IqNyI1hjLSQ="}, v1: newV1, oldWord: true},
	{Generation: "1.7", Golden: "1.7.0", kubernetes: mod{"k8s.io/kubernetes", "v1.7.0", "h1:SbVSyAzgyxRun+ZpB4+MsWbFWCRc7reDhmINx+MZ4AI="}, v1: oldV1, oldWord: true, other: []mod{oldSpew}},
	// 1.6.1 wants a go-restful with package swagger, and a grpc that its
	// generated code accepts; neither is near the hash.
	{Generation: "1.6", Golden: "1.6.1", kubernetes: mod{"k8s.io/kubernetes", "v1.6.1", "h1:4wU6rbFTV108Kb6Kr1e5DWKMI5GFxYGKi4/CEPMHn4I="}, v1: oldV1, oldWord: true, other: []mod{
		oldSpew,
		{"github.com/emicklei/go-restful", "v1.1.3", "h1:KOKLkEASmIa2roa2xEV6WkADqyWrok5dt3TOMMHF1fE="},
		{"google.golang.org/grpc", "v1.0.2", "h1:GgVBO4TaWRL+D2OCdvWHXCLACcxpkVXK4EnvcrR/1hM="},
	}},
}

// newer are the releases whose hashes the kubelet of base v1.12.10 knows besides; they are in the
// golden data only. Godeps.json of both: go-spew 782f4967f2dc.
var newer = []Release{
	{Generation: "1.12", Golden: "1.12.10", kubernetes: mod{"k8s.io/kubernetes", "v1.12.10", "h1:Ev14jntgqMAlW1Dyk++0dU76+Wb2FJ9VwopYK1R78m4="}, v1: newV1, pins: "bases/v1.12.10", defaults: true},
	{Generation: "1.10", Golden: "1.11.10", kubernetes: mod{"k8s.io/kubernetes", "v1.11.10", "h1:wCo67+wmguioiYv0ipIiTaXbVPfFBBjOTgIngeGGG+A="}, v1: newV1, pins: "bases/v1.11.10", defaults: true},
}

// builder makes the programs below dir.
type builder struct {
	root string // of the repository
	dir  string // _output/hashoracle
	log  io.Writer
	*pins
}

// newBuilder returns one with the pins of the root.
func newBuilder(root string, log io.Writer) (*builder, error) {
	p, err := readPins(root)
	return &builder{root, filepath.Join(root, "_output", "hashoracle"), log, p}, err
}

// goEnv is the environment of a go command; extra settings win.
func goEnv(extra ...string) []string { return append(gobuilder.GoEnv(), extra...) }

// An engine is a way of ours to compute hashes.
type engine struct {
	name string
	file string
	// args are the arguments for a mode, proto or json.
	args func(mode string) []string
	// every is how many containers of the series there are for each that this
	// engine is asked about.
	every int
}

// engines builds the engines of this checkout.
func (b *builder) engines(schemaEvery int) ([]engine, error) {
	name, err := base.Default(b.root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(b.root, "_output", "src", name, "ours", "go.mod")); err != nil {
		return nil, exit.Preconditionf("there is no source tree of %s below _output/src, which the kubelet's package is built with: run make source first", name)
	}
	// In a folder of its own: the root module does not have it.
	typed := filepath.Join(b.dir, "typed", "main.go")
	if err := os.MkdirAll(filepath.Dir(typed), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(typed, []byte(typedProgram), 0o644); err != nil {
		return nil, err
	}
	typedOut, schemaOut := filepath.Join(b.dir, "typed", "hashcompat"), filepath.Join(b.dir, "kubectl-holdfast")
	for _, p := range []struct{ dir, source, out string }{{b.root, typed, typedOut}, {filepath.Join(b.root, "cmd"), "./kubectl-holdfast", schemaOut}} {
		if err := goBuild(p.dir, "-o", p.out, p.source); err != nil {
			return nil, err
		}
	}
	var releases []string
	for _, r := range Releases {
		releases = append(releases, r.Generation)
	}
	return []engine{
		{"hashcompat", typedOut, func(mode string) []string { return []string{mode} }, 1},
		{"kubectl-holdfast", schemaOut, func(mode string) []string {
			return []string{"container-hash", "--release", strings.Join(releases, ","), "--mode", mode, "-o", "json", "-"}
		}, max(schemaEvery, 1)},
	}, nil
}

// oracle builds a release's program, or finds it built.
func (b *builder) oracle(r Release) (string, error) {
	b, err := b.with(r)
	if err != nil {
		return "", err
	}
	// Not the whole go.mod: most of its pins have nothing to do with this.
	key := sha256.Sum256([]byte(fmt.Sprintf("%s\n%s\n%s\n%+v\n%s\n", runtime.Version(), program, defaults, r, bigWord)))
	dir := filepath.Join(b.dir, r.kubernetes.version)
	out := filepath.Join(dir, fmt.Sprintf("oracle-%x", key[:8]))
	if _, err := os.Stat(out); err == nil && b.pinned(out+".modules") {
		return out, nil
	}
	fmt.Fprintf(b.log, "building the code of %s\n", r.kubernetes.version)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	src := filepath.Join(dir, "gopath", "src")
	if err := os.MkdirAll(filepath.Join(src, "oracle"), 0o755); err != nil {
		return "", err
	}
	files := map[string]string{"main.go": program, "defaults.go": noDefaults}
	if r.defaults {
		files["defaults.go"] = defaults
	}
	for name, text := range files {
		text = strings.Replace(text, "V1PACKAGE", r.v1, 1)
		if err := os.WriteFile(filepath.Join(src, "oracle", name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	modules, err := b.link(r, src)
	if err != nil {
		return "", fmt.Errorf("%s: %v", r.kubernetes.version, err)
	}
	// GOPATH mode takes the release's folders as they are in the module cache,
	// without a go.mod in each of them.
	args := []string{"build", "-trimpath"}
	if r.oldWord {
		overlay, err := oldWords(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "-o", out+".tmp", "oracle")...)
	cmd.Dir, cmd.Env = filepath.Join(src, "oracle"), goEnv("GO111MODULE=off", "GOPATH="+filepath.Dir(src), "GOMODCACHE="+goenv("GOMODCACHE"))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not build: %v\n%s", r.kubernetes.version, err, text)
	}
	if err := os.WriteFile(out+".modules", []byte(strings.Join(modules, "\n")), 0o644); err != nil {
		return "", err
	}
	return out, os.Rename(out+".tmp", out)
}

// bigWord is what makes the words of a big.Int as Go 1.8 and older declare them:
// changes of files below $GOROOT/src, each at one place. go-spew prints a uint in
// decimal, and a uintptr as an address. The second file takes one for the other.
var bigWord = []struct{ file, from, to string }{
	{"math/big/arith.go", "\ntype Word uint\n", "\ntype Word uintptr\n"},
	{"crypto/internal/boring/bbig/big.go", "(*uint)(&x[0])", "(*uint)(unsafe.Pointer(&x[0]))"},
	{"crypto/internal/boring/bbig/big.go", "(*big.Word)(&b[0])", "(*big.Word)(unsafe.Pointer(&b[0]))"},
}

// oldWords writes an overlay for the go command with bigWord, and returns its name.
func oldWords(dir string) (string, error) {
	src, texts := filepath.Join(goenv("GOROOT"), "src"), map[string]string{}
	for _, c := range bigWord {
		if texts[c.file] == "" {
			data, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(c.file)))
			if err != nil {
				return "", err
			}
			texts[c.file] = string(data)
		}
		if n := strings.Count(texts[c.file], c.from); n != 1 {
			return "", fmt.Errorf("%s of %s has %q %d times, want once", c.file, runtime.Version(), strings.TrimSpace(c.from), n)
		}
		texts[c.file] = strings.Replace(texts[c.file], c.from, c.to, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		name := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(src, filepath.FromSlash(file))] = name
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o644)
}

func goenv(name string) string {
	out, _ := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out))
}

// link puts the release, its staging repositories and, as long as a package is
// missing, the module that has it below src. It returns the modules that are
// pinned in go.mod, as "path version".
func (b *builder) link(r Release, src string) (modules []string, err error) {
	kube, err := b.download(r.kubernetes)
	if err != nil {
		return nil, err
	}
	if err := symlink(kube, filepath.Join(src, "k8s.io", "kubernetes")); err != nil {
		return nil, err
	}
	staging, err := filepath.Glob(filepath.Join(kube, "staging", "src", "k8s.io", "*"))
	if err != nil {
		return nil, err
	}
	for _, s := range staging {
		if err := symlink(s, filepath.Join(src, "k8s.io", filepath.Base(s))); err != nil {
			return nil, err
		}
	}
	linked := map[string]bool{}
	for {
		missing, err := missingPackages(src)
		if err != nil || len(missing) == 0 {
			return modules, err
		}
		progress := false
		for _, pkg := range missing {
			path, m := b.moduleOf(r, pkg)
			if path == "" {
				return nil, fmt.Errorf("no module in go.mod has package %s", pkg)
			}
			if linked[path] {
				continue
			}
			linked[path], progress = true, true
			dir := filepath.Join(b.root, m.path) // of a replacement in this repository
			if m.version != "" {
				if dir, err = b.download(m); err != nil {
					return nil, err
				}
			}
			if err := symlink(dir, filepath.Join(src, filepath.FromSlash(path))); err != nil {
				return nil, err
			}
			if pinned, ok := b.pin(path); ok && pinned == m {
				modules = append(modules, path+" "+m.version)
			}
		}
		if !progress {
			return nil, fmt.Errorf("the pinned modules lack packages %s", strings.Join(missing, ", "))
		}
	}
}

func symlink(target, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, name)
}

// missingPackages lists imports of the program that src does not have.
func missingPackages(src string) ([]string, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-f", "{{if and .Error (not .GoFiles)}}{{.ImportPath}}{{end}}", "oracle")
	cmd.Dir, cmd.Env = filepath.Join(src, "oracle"), goEnv("GO111MODULE=off", "GOPATH="+filepath.Dir(src))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %v\n%s", err, errs.Bytes())
	}
	missing := strings.Fields(string(out))
	sort.Strings(missing)
	return missing, nil
}
