// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reproducible

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
)

// profile skips the test unless it was asked for, and returns the checkout.
func profile(t *testing.T, want ...string) string {
	t.Helper()
	if got := os.Getenv("HOLDFAST_REPRODUCIBLE"); !slices.Contains(want, got) {
		t.Skipf("HOLDFAST_REPRODUCIBLE=%q: run make test (short) or make reproducible (long)", got)
	}
	root, err := base.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func bases(t *testing.T, root string) []*base.Base {
	t.Helper()
	names, err := base.Names(root)
	if err != nil {
		t.Fatal(err)
	}
	var out []*base.Base
	for _, n := range names {
		b, err := base.Load(root, n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// perBinary runs f for each binary that is built. Those of the product have to
// be; the others are there as far as a lab wanted them.
func perBinary(t *testing.T, f func(t *testing.T, x binary)) {
	root := profile(t, "short", "long")
	for _, b := range bases(t, root) {
		for _, v := range b.VariantNames() {
			for _, n := range b.BinaryNames(false) {
				if b.Binaries[n].Own() {
					continue
				}
				file := filepath.Join(b.BinDir(v), n)
				t.Run(strings.Join([]string{b.Name, string(v), n}, "/"), func(t *testing.T) {
					if _, err := os.Stat(file); err != nil {
						if b.Default && v == base.Ours && b.Binaries[n].DropIn {
							t.Fatal(err)
						}
						t.Skip("not built")
					}
					script, err := os.ReadFile(filepath.Join(b.SrcDir(v), "hack", "lib", "golang.sh"))
					if err != nil {
						t.Fatal(err)
					}
					f(t, binary{b, v, n, file, script})
				})
			}
		}
	}
}

var staticRE = regexp.MustCompile(`(?s)readonly KUBE_STATIC_LIBRARIES=\((.*?)\)`)

// TestKinds: static are the binaries that upstream's release script links statically, dynamic the
// others of the release; and all are as base.json says.
func TestKinds(t *testing.T) {
	perBinary(t, func(t *testing.T, x binary) {
		f, err := elf.Open(x.file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		static := f.Section(".interp") == nil && f.Section(".dynamic") == nil
		if x.released(t) {
			m := staticRE.FindSubmatch(x.script)
			if m == nil {
				t.Fatal("upstream's hack/lib/golang.sh has no list of static binaries")
			}
			if want := slices.Contains(strings.Fields(string(m[1])), x.name); static != want {
				t.Errorf("static: %v, upstream's release: %v", static, want)
			}
		}
		if cgo := x.b.Binaries[x.name].Cgo; static == cgo {
			t.Errorf("static: %v, but bases/%s/base.json says cgo: %v", static, x.b.Name, cgo)
		}
		if f.Machine != elf.EM_X86_64 && runtime.GOARCH == "amd64" {
			t.Errorf("machine %s", f.Machine)
		}
	})
}

// TestWhatTheySay: those of the release say their version, and none has a folder of this machine.
func TestWhatTheySay(t *testing.T) {
	perBinary(t, func(t *testing.T, x binary) {
		if x.released(t) {
			x.saysVersion(t)
		}
		raw, err := os.ReadFile(x.file)
		if err != nil {
			t.Fatal(err)
		}
		dirs, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range append(strings.Fields(string(dirs)), x.b.Root) {
			if bytes.Contains(raw, []byte(dir)) {
				t.Errorf("it names the folder %s of the machine that it was built on", dir)
			}
		}
	})
}

// TestReproducible copies the checkout into a folder of another name, writes
// the tree and links both binaries there: they have the sums of those of the
// checkout. Compiled packages come from the build cache that both share; that
// is sound because with -trimpath its keys hold no folder, so that what differs
// by folder would be compiled anew. TestFromEmptyCaches shares nothing.
func TestReproducible(t *testing.T) {
	root := profile(t, "short")
	before := state(t, root)
	want := sums(t, made(t, root, nil))
	other := checkoutCopy(t, root, filepath.Join(t.TempDir(), "another", "folder"))
	if state(t, root) != before {
		t.Fatal("the checkout was changed meanwhile: run it again")
	}
	if got := sums(t, made(t, other, nil)); !slices.Equal(got, want) {
		t.Errorf("sha256\n  %s\nin %s\n  %s", strings.Join(want, "\n  "), other, strings.Join(got, "\n  "))
	}
}

// TestFromEmptyCaches builds in two folders of different names and lengths,
// each from its own empty build cache: every package is compiled twice.
func TestFromEmptyCaches(t *testing.T) {
	root := profile(t, "long")
	var all [][]string
	for _, dir := range []string{"a", filepath.Join("a", "much", "longer", "path")} {
		tmp := t.TempDir()
		copied := checkoutCopy(t, root, filepath.Join(tmp, dir, "checkout"))
		env := []string{"GOCACHE=" + filepath.Join(tmp, "gocache")}
		files := slices.Concat(made(t, copied, env), optional(t, copied, env), others(t, copied, env))
		all = append(all, sums(t, files))
		if err := os.RemoveAll(tmp); err != nil { // gigabytes
			t.Fatal(err)
		}
	}
	if !slices.Equal(all[0], all[1]) {
		t.Errorf("sha256\n  %s\nand\n  %s", strings.Join(all[0], "\n  "), strings.Join(all[1], "\n  "))
	}
	t.Logf("sha256\n  %s", strings.Join(all[0], "\n  "))
}

// TestOffline runs make vendor, removes what was generated, and runs make
// OFFLINE=1 in a network namespace that has no device up and no route, with an
// empty module cache and an empty build cache. Then the same for the other bases
// that have a variant of ours.
func TestOffline(t *testing.T) {
	root := profile(t, "long")
	if os.Geteuid() != 0 {
		t.Fatal("a network namespace wants root")
	}
	onlineFiles := made(t, root, nil)
	online := sums(t, onlineFiles)
	tmp := t.TempDir()
	copied := checkoutCopy(t, root, filepath.Join(tmp, "checkout"))
	runIn(t, copied, nil, "make", "vendor")
	if err := os.RemoveAll(filepath.Join(copied, "_output")); err != nil {
		t.Fatal(err)
	}
	none := []string{"GOMODCACHE=" + filepath.Join(tmp, "modcache"), "GOPATH=" + filepath.Join(tmp, "gopath"), "GOCACHE=" + filepath.Join(tmp, "gocache")}
	if out := runIn(t, copied, nil, "unshare", "--net", "cat", "/proc/net/route", "/proc/net/dev"); strings.Contains(out, "eth") {
		t.Fatalf("the network namespace has a device:\n%s", out)
	}
	start := time.Now()
	runIn(t, copied, none, "unshare", "--net", "make", "OFFLINE=1")
	t.Logf("make OFFLINE=1 from empty caches took %.0f s", time.Since(start).Seconds())
	if left, _ := filepath.Glob(filepath.Join(tmp, "modcache", "*", "*")); len(left) > 0 {
		t.Errorf("it put something into the module cache: %s", left)
	}
	b := product(t, copied)
	var files []string
	for i, n := range b.BinaryNames(true) {
		file := filepath.Join(b.BinDir(base.Ours), n)
		files = append(files, file)
		// In vendor/ the go command knows no sums of modules, and notes none.
		if got, want := modules(t, file), modules(t, onlineFiles[i]); !slices.Equal(got, want) {
			t.Errorf("%s links other modules than the online build:\n%q\n%q", n, got, want)
		}
		if out := runIn(t, copied, nil, file, "--version"); out != "Kubernetes "+release(t, b)+"\n" {
			t.Errorf("%s --version: %s", n, out)
		}
	}
	for _, other := range otherProducts(t, copied) {
		runIn(t, copied, nil, "make", "BASE="+other.Name)
		want := sums(t, binaries(other))
		var linked [][]string
		for _, file := range binaries(other) {
			linked = append(linked, modules(t, file))
		}
		runIn(t, copied, nil, "make", "BASE="+other.Name, "vendor")
		if err := os.RemoveAll(filepath.Join(copied, "_output", "src")); err != nil {
			t.Fatal(err)
		}
		runIn(t, copied, none, "unshare", "--net", "make", "BASE="+other.Name, "OFFLINE=1")
		if other.Mode != base.ModeGOPATH { // as above: no sums of modules are noted
			for i, file := range binaries(other) {
				if got := modules(t, file); !slices.Equal(got, linked[i]) {
					t.Errorf("%s links other modules than the online build:\n%q\n%q", file, got, linked[i])
				}
			}
			continue
		}
		if got := sums(t, binaries(other)); !slices.Equal(got, want) {
			t.Errorf("%s offline\n  %s\nonline\n  %s", other.Name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
	offline := sums(t, files)
	t.Logf("sha256 offline\n  %s\nonline\n  %s\nequal: %v", strings.Join(offline, "\n  "), strings.Join(online, "\n  "), slices.Equal(offline, online))
}

// made runs make in a checkout and returns the product's binaries.
func made(t *testing.T, root string, env []string) []string {
	t.Helper()
	start := time.Now()
	out := runIn(t, root, env, "make")
	t.Logf("make in %s: %.0f s\n%s", root, time.Since(start).Seconds(), out)
	return binaries(product(t, root))
}

// optional builds the binaries of the product that make leaves out, and returns them.
func optional(t *testing.T, root string, env []string) []string {
	t.Helper()
	b := product(t, root)
	var files []string
	for _, n := range b.OptionalNames() {
		runIn(t, root, env, "_output/tools/holdfast", "build", n)
		files = append(files, filepath.Join(b.BinDir(base.Ours), n))
	}
	return files
}

// otherProducts are the bases with a product that make does not build by default.
func otherProducts(t *testing.T, root string) []*base.Base {
	t.Helper()
	return slices.DeleteFunc(bases(t, root), func(b *base.Base) bool { return b.Default || b.HasVariant(base.Ours) != nil })
}

// others builds those products, and returns their binaries.
func others(t *testing.T, root string, env []string) []string {
	t.Helper()
	var files []string
	for _, b := range otherProducts(t, root) {
		runIn(t, root, env, "make", "BASE="+b.Name)
		files = append(files, binaries(b)...)
	}
	return files
}

// binaries are the files of our drop-in binaries of b.
func binaries(b *base.Base) []string {
	var files []string
	for _, n := range b.BinaryNames(true) {
		files = append(files, filepath.Join(b.BinDir(base.Ours), n))
	}
	return files
}

// product is the base that plain make builds.
func product(t *testing.T, root string) *base.Base {
	t.Helper()
	b, err := base.LoadDefault(root)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// release is what a binary of ours of b says that it is.
func release(t *testing.T, b *base.Base) string {
	t.Helper()
	version, err := builder.Release(b, base.Ours)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func runIn(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(builder.GoEnv(), env...)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool {
		return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS=") || strings.HasPrefix(e, "HOLDFAST_") // ours, if make started us
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return string(out)
}

func sums(t *testing.T, files []string) []string {
	t.Helper()
	var out []string
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%x %s", sha256.Sum256(raw), filepath.Base(f)))
	}
	return out
}

// modules are the module versions that a binary was linked from.
func modules(t *testing.T, file string) []string {
	t.Helper()
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range info.Deps {
		out = append(out, m.Path+" "+m.Version)
	}
	return out
}

// state names the checkout's commit and what was changed since.
func state(t *testing.T, root string) string {
	t.Helper()
	return runIn(t, root, nil, "git", "log", "-1", "--format=%H") + runIn(t, root, nil, "git", "status", "--porcelain") + runIn(t, root, nil, "git", "diff", "HEAD")
}

// checkoutCopy copies the checkout as it is, changes that are not committed
// included, and its commit, which the version names.
func checkoutCopy(t *testing.T, root, dir string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a git checkout")
	}
	runIn(t, root, nil, "git", "clone", "--quiet", "--shared", "--no-checkout", root, dir)
	for _, name := range strings.Split(strings.Trim(runIn(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Lstat(from)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, raw, info.Mode().Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runIn(t, dir, nil, "git", "reset", "--quiet")
	return dir
}
