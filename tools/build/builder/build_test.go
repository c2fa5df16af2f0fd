// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"debug/buildinfo"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/patch"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/build/tree"
)

func value(env []string, key string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, key+"="); ok {
			return v
		}
	}
	return "unset"
}

func TestEnvironment(t *testing.T) {
	r := testrepo.New(t)
	for k, v := range map[string]string{"GOFLAGS": "-race", "GOOS": "plan9", "GOARCH": "arm", "GODEBUG": "x=1", "GOWORK": "/x/go.work",
		"CGO_ENABLED": "1", "CGO_CFLAGS": "-O0", "CGO_LDFLAGS": "-lx", "GOAMD64": "v3", "GOEXPERIMENT": "x", "GO111MODULE": "off", "HOLDFAST_OTHER": "kept"} {
		t.Setenv(k, v)
	}
	b := r.Base(t, testrepo.Name)
	env := Env(b, base.Ours, base.Binary{CgoCFLAGS: "-I${ROOT}/x"})
	for k, want := range map[string]string{"GOFLAGS": "", "GOOS": "unset", "GOARCH": "unset", "GODEBUG": "unset", "GOWORK": "off", "GOTOOLCHAIN": "local",
		"CGO_ENABLED": "0", "CGO_CFLAGS": "-O2 -g -I" + r.Root + "/x", "CGO_LDFLAGS": "-O2 -g", "GOAMD64": "v1", "GOEXPERIMENT": "unset",
		"GO111MODULE": "unset", "GOENV": "off", "GOPROXY": "file://" + r.Proxy, "GOMODCACHE": r.ModCache, "HOLDFAST_OTHER": "kept"} {
		if got := value(env, k); got != want {
			t.Errorf("%s=%q, want %q", k, got, want)
		}
	}
	t.Setenv("GOGC", "")
	if got := value(GoEnv(), "GOGC"); got != "800" {
		t.Errorf("GOGC=%s, want 800", got)
	}
	t.Setenv("GOGC", "50")
	if got := value(GoEnv(), "GOGC"); got != "50" {
		t.Errorf("a user's GOGC=50 is %s", got)
	}
	if got := value(Env(b, base.Ours, base.Binary{Cgo: true}), "CGO_ENABLED"); got != "1" {
		t.Errorf("a binary with cgo: CGO_ENABLED=%s", got)
	}
	old := r.Base(t, testrepo.GOPATHName)
	env = Env(old, base.Ours, base.Binary{})
	top := filepath.Join(r.Root, "_output/src/v1.2.0/ours")
	if got := value(env, "GOPATH"); value(env, "GO111MODULE") != "off" || got != top+"/src/example.com/up/Godeps/_workspace:"+top {
		t.Errorf("GOPATH=%s", got)
	}
}

// TestGoEnvFile: settings made with go env -w say where modules come from.
func TestGoEnvFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("GOPROXY=http://mirror.example\nGONOSUMDB=corp.example\nGOFLAGS=-race\nGOMODCACHE=/nowhere/mod\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", file)
	for _, k := range []string{"GOPROXY", "GONOSUMDB", "GOMODCACHE", "GOFLAGS"} {
		t.Setenv(k, "")
		os.Unsetenv(k)
	}
	env := GoEnv()
	for k, want := range map[string]string{"GOPROXY": "http://mirror.example", "GONOSUMDB": "corp.example", "GOMODCACHE": "/nowhere/mod", "GOFLAGS": ""} {
		if got := value(env, k); got != want {
			t.Errorf("%s=%q, want %q", k, got, want)
		}
	}
}

func TestLog(t *testing.T) {
	log := "go: downloading example.com/a v1.0.0\nexample.com/a\nexample.com/up/pkg/b\n# example.com/up/pkg/b\npkg/b/b.go:3:5: undefined: x\nexample.com/up/pkg/c\n"
	if got := compiled(log); got != 3 {
		t.Errorf("%d packages compiled, want 3", got)
	}
	want := "go: downloading example.com/a v1.0.0\n# example.com/up/pkg/b\npkg/b/b.go:3:5: undefined: x"
	if got := compileErrors(log); got != want {
		t.Errorf("errors: %q", got)
	}
	if compiled("") != 0 {
		t.Error("an empty log has packages")
	}
}

func TestEpoch(t *testing.T) {
	if got, err := epoch("1000000000"); got != "2001-09-09T01:46:40Z" || err != nil {
		t.Error(got, err)
	}
	for _, s := range []string{"", "now", "1.5"} {
		if _, err := epoch(s); err == nil {
			t.Errorf("%q is taken for a number of seconds", s)
		}
	}
}

func TestBuildSeparatesVariants(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	var content [][]byte
	for _, v := range []base.Variant{base.Ours, base.Stock, base.Ours} {
		files, err := Build(t.Context(), b, Options{Variant: v})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{filepath.Join(r.Root, "_output/bin/v1.9.11", v.Dir(), "hello")}; !slices.Equal(files, want) {
			t.Errorf("built %q, want %q", files, want)
		}
		raw, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, raw)
		info, err := buildinfo.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if settings["-trimpath"] != "true" || settings["CGO_ENABLED"] != "0" || settings["vcs"] != "" {
			t.Errorf("%s: %v", v, settings)
		}
		if bytes.Contains(raw, []byte(r.Root)) {
			t.Errorf("%s: the binary names the folder of the checkout", v)
		}
	}
	if !bytes.Equal(content[0], content[2]) {
		t.Error("our binary is another after stock was built")
	}
}

// TestOptional: a binary with a variant of its own is put beside the others of ours,
// says the same version, and has only what names it. It is not built unasked.
func TestOptional(t *testing.T) {
	r := testrepo.New(t)
	r.EditBase(t, testrepo.Name, func(b *base.Base) {
		b.Variants["third"] = base.VariantSpec{Product: true, Component: "other"}
		b.Binaries["other"] = base.Binary{Package: "./cmd/hello", Optional: true}
	})
	for name, of := range map[string][]string{"version": {"hello", "other"}, "ours": {"hello", "other"}, "louder": {"hello"}} {
		r.EditFix(t, name, func(c *fixes.Content) { c.Components = of })
	}
	b := r.Base(t, testrepo.Name)
	says := func(v base.Variant, names ...string) []string {
		t.Helper()
		files, err := Build(t.Context(), b, Options{Variant: v, Binaries: names})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range files {
			said, err := exec.Command(f).CombinedOutput()
			if err != nil {
				t.Fatal(err)
			}
			version, rest, _ := strings.Cut(strings.TrimSpace(string(said)), " ")
			out = append(out, f[len(r.Root):]+" "+version+" "+rest[strings.LastIndex(rest, "Z ")+2:])
		}
		return out
	}
	const dir = "/_output/bin/v1.9.11/"
	for _, tc := range []struct {
		of    base.Variant
		names []string
		want  []string
	}{
		{base.Ours, nil, []string{dir + "ours/hello v1.9.11+holdfast.1.post.unknown hello! plain"}},
		{base.Ours, []string{"other", "hello"}, []string{dir + "ours/other v1.9.11+holdfast.1.post.unknown hello plain", dir + "ours/hello v1.9.11+holdfast.1.post.unknown hello! plain"}},
		{"ours -ours", []string{"other"}, []string{dir + "ours-minus-ours/other v1.9.11+holdfast.1.post.unknown.minus.ours hello plain"}},
		{base.Stock, []string{"other"}, []string{dir + "stock/other v1.9.11 hello plain"}},
	} {
		if got := says(tc.of, tc.names...); !slices.Equal(got, tc.want) {
			t.Errorf("%s %q: built %q, want %q", tc.of, tc.names, got, tc.want)
		}
	}
	if _, err := Build(t.Context(), b, Options{Variant: "third"}); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "holdfast build other") {
		t.Error(err)
	}
	if err := BuildWithout(t.Context(), b, "louder"); err != nil || r.Exists("_output/bin/v1.9.11/ours-minus-louder/other") {
		t.Errorf("built without a fix that it does not have: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(r.Root, "_output", "bin")); err != nil {
		t.Fatal(err)
	}
	if err := BuildWithout(t.Context(), b, "ours"); err != nil || !r.Exists("_output/bin/v1.9.11/ours-minus-ours/hello") || !r.Exists("_output/bin/v1.9.11/ours-minus-ours/other") {
		t.Error(err)
	}
}

// TestReproducible copies the checkout to another folder and builds there from
// an empty tree: the binary is the same. That the compiler gives the same
// output twice is not shown here, because both share the build cache.
func TestReproducible(t *testing.T) {
	r := testrepo.New(t)
	first := build(t, r.Base(t, testrepo.Name))
	copied := filepath.Join(t.TempDir(), "a", "longer", "path")
	for _, dir := range []string{"bases", "patches", "pkg"} {
		if err := os.CopyFS(filepath.Join(copied, dir), os.DirFS(filepath.Join(r.Root, dir))); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join(copied, f), []byte(r.Read(t, f)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := base.Load(copied, testrepo.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, build(t, b)) {
		t.Error("the same sources in another folder make another binary")
	}
}

func build(t *testing.T, b *base.Base) []byte {
	t.Helper()
	files, err := Build(t.Context(), b, Options{Variant: base.Ours})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// generator stands for openapi-gen: it writes its input into its output and its report.
const generator = `package main

import (
	"flag"
	"os"
	"path/filepath"
)

func main() {
	flag.Bool("logtostderr", false, "")
	report := flag.String("r", "", "")
	in, pkg, name, head, out := flag.String("i", "", ""), flag.String("p", "", ""), flag.String("O", "", ""), flag.String("h", "", ""), flag.String("o", "", "")
	flag.Parse()
	boilerplate, err := os.ReadFile(*head)
	if err != nil {
		panic(err)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("GOPATH"), "src/example.com/up/pkg/types/types.go")); err != nil {
		panic(err)
	}
	if *report != "" {
		if err := os.WriteFile(*report, []byte("rule one\n"+*in+"\n"), 0o644); err != nil {
			panic(err)
		}
	}
	dir := filepath.Join(*out, *pkg)
	os.MkdirAll(dir, 0o755)
	if err := os.WriteFile(filepath.Join(dir, *name+".go"), []byte(string(boilerplate)+"package openapi\n\n// "+*in+"\n"), 0o644); err != nil {
		panic(err)
	}
}
`

// openAPIBase is a base whose invented upstream has the generator, a type and the files also.
func openAPIBase(t *testing.T, also map[string]string, violations string) (*testrepo.Repo, *base.Base) {
	t.Helper()
	r := testrepo.New(t)
	files := maps.Clone(testrepo.Upstream)
	files["cmd/openapi-gen/main.go"] = generator
	files["hack/boilerplate/boilerplate.go.txt"] = "// boilerplate\n"
	files["pkg/types/types.go"] = "package types\n\n// +k8s:openapi-gen=true\ntype T struct{}\n"
	maps.Copy(files, also)
	sum, err := r.Publish(testrepo.Module, testrepo.Name, files)
	if err != nil {
		t.Fatal(err)
	}
	r.EditBase(t, testrepo.Name, func(b *base.Base) {
		b.Sum, b.OpenAPI = sum, &base.OpenAPI{Generator: "example.com/up/cmd/openapi-gen", Violations: violations}
	})
	return r, r.Base(t, testrepo.Name)
}

// TestOpenAPIViolations: what the generator reports must be upstream's list.
func TestOpenAPIViolations(t *testing.T) {
	const list, good = "api/rules.list", "rule one\nexample.com/up/pkg/types\n"
	for name, tc := range map[string]struct{ list, says string }{
		"the same":     {good, ""},
		"another line": {strings.Replace(good, "one", "two", 1), `line 1 is "rule two" there, and "rule one" in the report`},
		"one more":     {good + "rule three\n", `line 3 is "rule three" there, and "" in the report`},
		"one less":     {"rule one\n", `line 2 is "" there, and "example.com/up/pkg/types" in the report`},
		"empty":        {"", `line 1 is "" there`},
	} {
		t.Run(name, func(t *testing.T) {
			r, b := openAPIBase(t, map[string]string{list: tc.list}, list)
			_, err := Source(t.Context(), b, base.Stock)
			if tc.says == "" {
				if err != nil || !r.Exists("_output/src/v1.9.11/stock/"+tree.OpenAPIFile) {
					t.Error(err)
				}
				return
			}
			if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), list) {
				t.Errorf("%v, want %s", err, tc.says)
			}
			if left := r.Snapshot(t, "_output/cache"); len(left) > 0 {
				t.Errorf("definitions with another report are kept: %d files", len(left))
			}
		})
	}
	// A list that changes is compared again.
	r, b := openAPIBase(t, map[string]string{list: good}, list)
	if _, err := Source(t.Context(), b, base.Stock); err != nil {
		t.Fatal(err)
	}
	changed, err := testrepo.Patch("patches/toolchain/rules-list/v1.9.11/0002.patch", patch.Change{Path: list, Old: []byte(good), New: []byte("rule two\n")})
	if err != nil {
		t.Fatal(err)
	}
	r.Write(t, "patches/toolchain/rules-list/v1.9.11/0002.patch", string(changed))
	if _, err := Source(t.Context(), r.Base(t, testrepo.Name), base.Stock); err == nil || !strings.Contains(err.Error(), `"rule two" there`) {
		t.Error(err)
	}
}

func TestOpenAPI(t *testing.T) {
	r, b := openAPIBase(t, nil, "")
	source := func() map[string]string {
		t.Helper()
		for _, v := range b.VariantNames() {
			if _, err := Source(t.Context(), b, v); err != nil {
				t.Fatal(err)
			}
		}
		return r.Snapshot(t, "_output/cache")
	}
	const out = "_output/src/v1.9.11/ours/" + tree.OpenAPIFile
	first := source()
	if len(first) != 1 {
		t.Errorf("stock and ours have the same types, but there are %d generated files", len(first))
	}
	if got := r.Read(t, out); got != "// boilerplate\npackage openapi\n\n// example.com/up/pkg/types\n" {
		t.Errorf("%q", got)
	}
	if again := source(); !maps.Equal(first, again) {
		t.Error("generated again, with nothing changed")
	}
	// A type of ours is in our definitions, not in stock's.
	r.Write(t, "pkg/ours/types.go", "package ours\n\n// +k8s:openapi-gen=true\ntype T struct{}\n")
	if len(source()) != 2 || !strings.Contains(r.Read(t, out), "example.com/up/pkg/ours,example.com/up/pkg/types") {
		t.Errorf("%q", r.Read(t, out))
	}
	if strings.Contains(r.Read(t, "_output/src/v1.9.11/stock/"+tree.OpenAPIFile), "pkg/ours") {
		t.Error("stock has definitions of ours")
	}
	// A generator that fails leaves nothing behind that would be used.
	r.Write(t, "pkg/ours/more.go", "package ours\n\n// changed\n")
	b.OpenAPI.Generator = "example.com/up/cmd/none"
	before := r.Snapshot(t, "_output/cache")
	if _, err := Source(t.Context(), b, base.Ours); err == nil || !strings.Contains(err.Error(), "example.com/up/cmd/none") {
		t.Error(err)
	}
	if !maps.Equal(before, r.Snapshot(t, "_output/cache")) {
		t.Error("a failed generator left something in the cache")
	}
}
