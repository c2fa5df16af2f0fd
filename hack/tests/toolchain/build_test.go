// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../../.."

// pinnedBase is a base with pins of its own: the default one, whose pins are the root's, and those
// whose base.json says "pins".
type pinnedBase struct {
	Base, Module, Version, Pins string
	Default                     bool
	Variants                    map[string]json.RawMessage
}

// pinFolder has the go.mod with the base's pins.
func (b pinnedBase) pinFolder() string { return filepath.Join(root, filepath.FromSlash(b.Pins)) }

// pinnedBases are those of the checkout, by their names.
func pinnedBases(t *testing.T) []pinnedBase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "bases", "*", "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []pinnedBase
	defaults := 0
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var b pinnedBase
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if b.Default {
			defaults++
		}
		if b.Default || b.Pins != "" {
			out = append(out, b)
		}
	}
	if defaults != 1 {
		t.Fatalf("%d bases/*/base.json say \"default\": true, want one", defaults)
	}
	return out
}

// newestGlibc is what CentOS 7 has; Ubuntu 16.04 has 2.23, Debian 9 2.24.
var newestGlibc = []int{2, 17}

// perBinary runs f for each built binary of that name of a base with pins; one that is not there
// yet (make builds the product's) is skipped.
func perBinary(t *testing.T, name string, f func(t *testing.T, b pinnedBase, file string)) {
	for _, b := range pinnedBases(t) {
		for _, variant := range []string{"ours", "stock"} {
			if _, ok := b.Variants[variant]; !ok {
				continue
			}
			file := filepath.Join(root, "_output/bin", b.Base, variant, name)
			t.Run(b.Base+"/"+variant+"/"+name, func(t *testing.T) {
				if _, err := os.Stat(file); os.IsNotExist(err) {
					t.Skipf("%s is not built: run make", file)
				}
				f(t, b, file)
			})
		}
	}
}

// TestGlibcVersions: the kubelet is dynamic, as upstream's is, and has to start
// on the nodes of its time. The linker binds to the newest version of each
// symbol unless told otherwise (bases/cgo).
func TestGlibcVersions(t *testing.T) {
	perBinary(t, "kubelet", func(t *testing.T, _ pinnedBase, file string) {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Type != elf.ET_EXEC {
			t.Errorf("type %s, want %s: the Go linker's probe for -no-pie failed", f.Type, elf.ET_EXEC)
		}
		symbols, err := f.ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		threads := false
		for _, s := range symbols {
			threads = threads || s.Name == "pthread_create"
			v, isGlibc := strings.CutPrefix(s.Version, "GLIBC_")
			if s.Version != "" && !isGlibc {
				t.Errorf("%s wants version %s of %s", s.Name, s.Version, s.Library)
			}
			if isGlibc && slices.Compare(numbers(t, v), newestGlibc) > 0 {
				t.Errorf("%s wants %s of %s: add it to bases/cgo/holdfast_glibc217.h", s.Name, s.Version, s.Library)
			}
		}
		if !threads {
			t.Error("pthread_create is not imported: is this a cgo build?")
		}
		libs, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		// Where an old glibc has the functions that a new one has in libc.
		for _, lib := range []string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "libresolv.so.2"} {
			if !slices.Contains(libs, lib) {
				t.Errorf("%s is not among the needed libraries %v", lib, libs)
			}
		}
	})
}

// TestStatic: upstream's kube-controller-manager is static (CGO_ENABLED=0,
// KUBE_STATIC_LIBRARIES in its hack/lib/golang.sh).
func TestStatic(t *testing.T) {
	perBinary(t, "kube-controller-manager", func(t *testing.T, _ pinnedBase, file string) {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("has a %s segment: not static", p.Type)
			}
		}
	})
}

// TestGodebugInBinaries: each binary was linked with the settings of go.mod.
func TestGodebugInBinaries(t *testing.T) {
	for _, name := range []string{"kubelet", "kube-controller-manager"} {
		perBinary(t, name, func(t *testing.T, b pinnedBase, file string) {
			info, err := buildinfo.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			have := map[string]bool{}
			for _, s := range info.Settings {
				if s.Key == "DefaultGODEBUG" {
					for _, kv := range strings.Split(s.Value, ",") {
						have[kv] = true
					}
				}
			}
			for _, g := range godebug(t, b.pinFolder()) {
				if g.Key != "default" && !have[g.Key+"="+g.Value] {
					t.Errorf("%s=%s of go.mod is not linked in: %v", g.Key, g.Value, have)
				}
			}
			if !have["tlsrsakex=1"] || !have["multipathtcp=0"] {
				t.Errorf("default=go1.20 of go.mod is not linked in: %v", have)
			}
		})
	}
}

type setting struct{ Key, Value string }

// godebug are the settings of the go.mod in a folder.
func godebug(t *testing.T, folder string) []setting {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct{ Godebug []setting }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod.Godebug
}

// TestGodebugDocumented: toolchain.md has a verdict on each setting that this
// Go knows, so that a newer Go does not change a default unseen; and go.mod has
// the lines that the page promises.
func TestGodebugDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/design/toolchain.md"))
	if err != nil {
		t.Fatal(err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(strings.TrimSpace(string(goroot)), "src/internal/godebugs/table.go")
	file, err := parser.ParseFile(token.NewFileSet(), table, nil, 0)
	if err != nil {
		t.Skipf("this Go has no sources: %v", err)
	}
	seen := 0
	ast.Inspect(file, func(n ast.Node) bool {
		kv, isKV := n.(*ast.KeyValueExpr)
		if !isKV {
			return true
		}
		if key, isIdent := kv.Key.(*ast.Ident); !isIdent || key.Name != "Name" {
			return true
		}
		lit, isLit := kv.Value.(*ast.BasicLit)
		if !isLit {
			return true
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+name+"=") {
			t.Errorf("docs/design/toolchain.md says nothing about the GODEBUG setting %s, which %s knows", name, runtime.Version())
		}
		return true
	})
	if seen < 50 {
		t.Errorf("%s: %d settings found, expected more than 50: has its form changed?", table, seen)
	}
	for _, b := range pinnedBases(t) {
		if got, want := godebug(t, b.pinFolder()), godebug(t, root); !slices.Equal(got, want) {
			t.Errorf("base %s: the godebug settings of its pins are %v, the root's are %v", b.Base, got, want)
		}
	}
	for _, g := range godebug(t, root) {
		if !strings.Contains(string(page), "`"+g.Key+"="+g.Value+"`") {
			t.Errorf("docs/design/toolchain.md does not explain go.mod's godebug %s=%s", g.Key, g.Value)
		}
	}
}

func numbers(t *testing.T, v string) []int {
	t.Helper()
	var out []int
	for _, p := range strings.Split(v, ".") {
		n, err := strconv.Atoi(p)
		if err != nil {
			t.Fatalf("version %q: %v", v, err)
		}
		out = append(out, n)
	}
	return out
}
