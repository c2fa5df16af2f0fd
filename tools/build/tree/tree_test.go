// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/patch"
	"holdfast/tools/build/testrepo"
)

const (
	srcDir   = "_output/src/v1.9.11/ours"
	stockDir = "_output/src/v1.9.11/stock"
)

func ours(t *testing.T, r *testrepo.Repo) *Tree {
	t.Helper()
	return &Tree{Base: r.Base(t, testrepo.Name), Variant: base.Ours}
}

// only gives a fix to a base for which it has no patch.
func only(base string) func(*fixes.Content) {
	return func(c *fixes.Content) { c.Bases = map[string]fixes.Spec{base: c.Spec}; c.Spec = fixes.Spec{} }
}

func materialise(t *testing.T, tr *Tree) *Result {
	t.Helper()
	res, err := tr.Materialise()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// refused checks that err has the given exit status and names all of parts.
func refused(t *testing.T, err error, code int, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if got := exit.Code(err); got != code {
		t.Errorf("exit status %d, want %d", got, code)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q:\n%v", p, err)
		}
	}
}

// untouched runs f and checks that it left every file below _output/src alone,
// contents and times.
func untouched(t *testing.T, r *testrepo.Repo, f func()) {
	t.Helper()
	before := r.Snapshot(t, "_output/src")
	f()
	for p, c := range r.Snapshot(t, "_output/src") {
		if before[p] != c {
			t.Errorf("%s was changed", p)
		}
		delete(before, p)
	}
	for p := range before {
		t.Errorf("%s was removed", p)
	}
}

func TestMaterialiseVariants(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	for _, v := range []base.Variant{base.Ours, base.Stock} {
		if res := materialise(t, &Tree{Base: b, Variant: v}); res.UpToDate || res.Written == 0 {
			t.Errorf("%s: first run: %+v", v, res)
		}
	}
	for file, want := range map[string]string{
		srcDir + "/" + testrepo.Patched:                 testrepo.LouderPatched,
		stockDir + "/" + testrepo.Patched:               testrepo.Upstream[testrepo.Patched],
		srcDir + "/" + testrepo.Plain:                   testrepo.Upstream[testrepo.Plain],
		srcDir + "/" + testrepo.Overlay:                 testrepo.OverlayFiles[testrepo.Overlay],
		srcDir + "/" + testrepo.ForkDir + "/codec.go":   "package fork\n\nconst Alphabet = \"ab_.\"\n",
		stockDir + "/" + testrepo.ForkDir + "/codec.go": "package fork\n\nconst Alphabet = \"ab_.\"\n",
		srcDir + "/staging/src/k8s.io/api/go.mod":       "module k8s.io/api\n\ngo 1.20\n",
		srcDir + "/third_party/example.com/fork/go.mod": "module example.com/fork\n\ngo 1.20\n",
	} {
		if got := r.Read(t, file); got != want {
			t.Errorf("%s:\n%s", file, got)
		}
	}
	for _, file := range []string{testrepo.Overlay, testrepo.OverlayPkg} {
		if r.Exists(stockDir + "/" + file) {
			t.Errorf("stock has the overlay file %s", file)
		}
	}
	mod := r.Read(t, srcDir+"/go.mod")
	for _, want := range []string{"module example.com/up\n", "go 1.20\n", "k8s.io/api => ./staging/src/k8s.io/api", "example.com/fork => ./third_party/example.com/fork"} {
		if !strings.Contains(mod, want) {
			t.Errorf("the tree's go.mod lacks %q:\n%s", want, mod)
		}
	}
	info, err := os.Stat(filepath.Join(r.Root, srcDir, "hack/run.sh"))
	if err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("hack/run.sh is not executable: %v %v", info, err)
	}
}

func TestMaterialiseGOPATH(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.GOPATHName)
	const dep = "Godeps/_workspace/src/example.com/dep/dep"
	for variant, word := range map[base.Variant]string{base.Stock: "dep2", base.Ours: "dep2", "naive": "dep1"} {
		tr := &Tree{Base: b, Variant: variant}
		materialise(t, tr)
		dir, err := filepath.Rel(r.Root, tr.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Read(t, dir+"/"+dep+".go"); !strings.Contains(got, `"`+word+`"`) {
			t.Errorf("%s: patched and renamed file: %s", variant, got)
		}
		if r.Exists(dir + "/" + dep + "_js.go") {
			t.Errorf("%s: the renamed file is there under its old name too", variant)
		}
		if got, want := r.Exists(dir+"/pkg/compat/compat.go"), true; got != want {
			t.Errorf("%s: overlay of the toolchain series: %v", variant, got)
		}
		if got, want := r.Exists(dir+"/pkg/carried/carried.go"), variant == base.Ours; got != want {
			t.Errorf("%s: overlay of the carry series: %v", variant, got)
		}
		if r.Exists(dir+"/go.mod") || r.Exists(dir+"/cmd/hello/"+barrierName) {
			t.Errorf("%s: go.mod or the barrier is left in a GOPATH tree", variant)
		}
	}
}

// TestMaterialiseWithout: a fix goes with its patches, its overlay files and the
// fixes that need it, and the patches behind its own still apply.
func TestMaterialiseWithout(t *testing.T) {
	r := testrepo.New(t)
	first := strings.Replace(testrepo.Upstream[testrepo.Patched], "// Word greets.\n", "// Word greets.\n//\n// Politely.\n", 1)
	second := strings.Replace(first, `return "hello"`, `return Shout("hello")`, 1)
	const polite = "patches/polite/v1.9.11/0205.patch"
	both := map[string]patch.Change{
		polite:          {Path: testrepo.Patched, Old: []byte(testrepo.Upstream[testrepo.Patched]), New: []byte(first)},
		testrepo.Louder: {Path: testrepo.Patched, Old: []byte(first), New: []byte(second)},
	}
	for name, c := range both {
		raw, err := testrepo.Patch(name, c)
		if err != nil {
			t.Fatal(err)
		}
		r.Write(t, name, string(raw))
	}
	r.EditFix(t, "polite", func(c *fixes.Content) { c.Kind = fixes.Own })
	r.EditFix(t, "ours", func(c *fixes.Content) {
		s := c.Bases[testrepo.Name]
		s.Needs = []string{"louder"}
		c.Bases[testrepo.Name] = s
	})
	b := r.Base(t, testrepo.Name)
	for variant, want := range map[base.Variant]struct {
		patched      string
		louder, ours bool
	}{
		"ours":                 {second, true, true},
		"ours -polite":         {testrepo.LouderPatched, true, true},
		"ours -louder":         {first, false, false},
		"ours -ours":           {second, true, false},
		"ours -louder -polite": {testrepo.Upstream[testrepo.Patched], false, false},
		"ours -version":        {second, true, true},
		"stock -fork-alphabet": {testrepo.Upstream[testrepo.Patched], false, false},
	} {
		tr := &Tree{Base: b, Variant: variant}
		materialise(t, tr)
		dir := "_output/src/v1.9.11/" + strings.ReplaceAll(string(variant), " -", "-minus-")
		if got := r.Read(t, dir+"/"+testrepo.Patched); got != want.patched {
			t.Errorf("%s:\n%s", variant, got)
		}
		if r.Exists(dir+"/"+testrepo.Overlay) != want.louder || r.Exists(dir+"/"+testrepo.OverlayPkg) != want.ours {
			t.Errorf("%s: it has overlay files of a fix that is not there, or lacks some", variant)
		}
		_, err := tr.Extract("")
		if len(variant.Minus()) > 0 {
			refused(t, err, 2, "leaves out "+strings.Split(string(variant), " -")[1])
			_, err = tr.Normalise()
			refused(t, err, 2, "leaves out")
		}
	}
	if got := r.Read(t, "_output/src/v1.9.11/stock-minus-fork-alphabet/"+testrepo.ForkDir+"/codec.go"); !strings.Contains(got, "ab__") {
		t.Error(got)
	}
}

func TestMaterialiseIsIncremental(t *testing.T) {
	r := testrepo.New(t)
	materialise(t, ours(t, r))
	untouched(t, r, func() {
		if res := materialise(t, ours(t, r)); !res.UpToDate {
			t.Errorf("second run: %+v", res)
		}
	})
	for _, tc := range []struct {
		name             string
		change           func()
		written, removed int
		file, want       string // of the tree
	}{
		{"overlay file edited", func() { r.Edit(t, testrepo.OverlayPkg, `"ours"`, `"theirs"`) }, 1, 0, testrepo.OverlayPkg, `"theirs"`},
		{"overlay file added", func() { r.Write(t, "pkg/ours/more.go", "package ours\n") }, 1, 0, "pkg/ours/more.go", "package ours"},
		{"overlay file removed", func() { os.Remove(filepath.Join(r.Root, "pkg/ours/more.go")) }, 0, 1, "", ""},
		{"patch edited", func() { r.Edit(t, testrepo.Louder, `Shout("hello")`, `Shout("hey")`) }, 1, 0, testrepo.Patched, `Shout("hey")`},
		{"patch taken out", func() { os.Remove(filepath.Join(r.Root, testrepo.Louder)); r.EditFix(t, "louder", only(testrepo.Name)) }, 1, 0, testrepo.Patched, `return "hello"`},
		{"pin changed", func() { r.Edit(t, "go.mod", "go 1.26\n", "go 1.26\n\ngodebug default=go1.21\n") }, 0, 0, "go.mod", "default=go1.21"},
		{"file of the tree removed", func() { os.Remove(filepath.Join(r.Root, srcDir, testrepo.Plain)) }, 1, 0, testrepo.Plain, "plain"},
		{"file of the tree touched", func() {
			now := time.Now().Add(time.Hour)
			if err := os.Chtimes(filepath.Join(r.Root, srcDir, testrepo.Plain), now, now); err != nil {
				t.Fatal(err)
			}
		}, 0, 0, testrepo.Plain, "plain"},
	} {
		tc.change()
		before := r.Snapshot(t, srcDir)
		res := materialise(t, ours(t, r))
		if res.Written != tc.written || res.Removed != tc.removed {
			t.Errorf("%s: %+v, want %d written, %d removed", tc.name, res, tc.written, tc.removed)
		}
		changed := 0
		for p, c := range r.Snapshot(t, srcDir) {
			if before[p] != c && p != "go.mod" { // go.mod goes and comes back as the barrier
				changed++
			}
		}
		if changed != tc.written {
			t.Errorf("%s: %d files were written, want %d", tc.name, changed, tc.written)
		}
		if tc.file != "" && !strings.Contains(r.Read(t, srcDir+"/"+tc.file), tc.want) {
			t.Errorf("%s: %s has no %s", tc.name, tc.file, tc.want)
		}
		if res := materialise(t, ours(t, r)); !res.UpToDate {
			t.Errorf("%s: the run after it: %+v", tc.name, res)
		}
	}
}

// TestMaterialiseRefuses has one case for each input that is not as it should
// be: the error says what and the old tree stays as it was.
func TestMaterialiseRefuses(t *testing.T) {
	editBase := func(edit func(*base.Base)) func(*testing.T, *testrepo.Repo) {
		return func(t *testing.T, r *testrepo.Repo) { r.EditBase(t, testrepo.Name, edit) }
	}
	cached := "example.com/up@v1.9.11/"
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *testrepo.Repo)
		code   int
		parts  []string
	}{
		{"committed sum is another", editBase(func(b *base.Base) { b.Sum = "h1:AAAA" }), 1,
			[]string{"example.com/up@v1.9.11", "h1:AAAA", "bases/v1.9.11/base.json", "was not changed"}},
		{"committed sum of the fork is another", editBase(func(b *base.Base) { b.Forks[0].Sum = "h1:BBBB" }), 1,
			[]string{"example.com/fork@v1.0.0", "h1:BBBB"}},
		{"file changed in the module cache", func(t *testing.T, r *testrepo.Repo) {
			file := filepath.Join(r.ModCache, cached+testrepo.Plain)
			if err := os.Chmod(file, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("package plain\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			r.Write(t, "pkg/ours/more.go", "package ours\n")
		}, 1, []string{"module cache", cached[:len(cached)-1], "rm -rf", "was not changed"}},
		{"file added to the module cache", func(t *testing.T, r *testrepo.Repo) {
			dir := filepath.Join(r.ModCache, cached, "pkg/plain")
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "evil.go"), []byte("package plain\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			r.Write(t, "pkg/ours/more.go", "package ours\n")
		}, 1, []string{"module cache", "was not changed"}},
		{"unknown version", editBase(func(b *base.Base) { b.Version = "v1.9.99" }), 1, []string{"example.com/up@v1.9.99", "network"}},
		{"overlay collides with upstream", func(t *testing.T, r *testrepo.Repo) { r.Write(t, testrepo.Plain, "package plain\n") }, 1,
			[]string{testrepo.Plain, "exists upstream"}},
		{"overlay file is a link", func(t *testing.T, r *testrepo.Repo) {
			if err := os.Symlink("ours.go", filepath.Join(r.Root, "pkg/ours/link.go")); err != nil {
				t.Fatal(err)
			}
		}, 1, []string{"pkg/ours/link.go", "not a regular file"}},
		{"patch does not apply", func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, testrepo.Louder, `-	return "hello"`, `-	return "hallo"`)
		}, 1, []string{testrepo.Louder, testrepo.Patched + ":5", "hunk 1"}},
		{"patch of a file that is not there", func(t *testing.T, r *testrepo.Repo) {
			p := testrepo.Louder
			r.Write(t, p, strings.ReplaceAll(r.Read(t, p), testrepo.Patched, "pkg/gone.go"))
		}, 1, []string{testrepo.Louder, "pkg/gone.go", "does not exist"}},
		{"rename of a file that is not there", editBase(func(b *base.Base) { b.Renames = []base.Rename{{From: "a.go", To: "b.go"}} }), 1,
			[]string{"bases/v1.9.11/base.json", "a.go"}},
		{"overlay file of no fix", func(t *testing.T, r *testrepo.Repo) { r.Write(t, "pkg/new/new.go", "package new\n") }, 1,
			[]string{"pkg/new/new.go is in no fix", "fix.json"}},
		{"go.mod is malformed", func(t *testing.T, r *testrepo.Repo) { r.Write(t, "go.mod", "module holdfast\n\nrequire nonsense\n") }, 1, []string{"go.mod:3"}},
		{"manifest is damaged", func(t *testing.T, r *testrepo.Repo) { r.Write(t, srcDir+".json", "{") }, 1, []string{srcDir + ".json", "damaged"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := testrepo.New(t)
			materialise(t, ours(t, r))
			tc.change(t, r)
			untouched(t, r, func() {
				_, err := ours(t, r).Materialise()
				refused(t, err, tc.code, tc.parts...)
			})
		})
	}
	t.Run("unknown variant", func(t *testing.T) {
		r := testrepo.New(t)
		for name, f := range map[string]func(*Tree) error{
			"Materialise": func(tr *Tree) error { _, err := tr.Materialise(); return err },
			"Extract":     func(tr *Tree) error { _, err := tr.Extract(""); return err },
			"Discard":     func(tr *Tree) error { _, err := tr.Discard(); return err },
			"Normalise":   func(tr *Tree) error { _, err := tr.Normalise(); return err },
		} {
			refused(t, f(&Tree{Base: r.Base(t, testrepo.Name), Variant: "mine"}), 2, `"mine"`, "stock, ours")
			refused(t, f(&Tree{Base: r.Base(t, testrepo.Name), Variant: "ours -none"}), 2, `no fix "none"`, "louder")
			if r.Exists("_output") {
				t.Errorf("%s made something", name)
			}
		}
	})
}

func TestNoNetwork(t *testing.T) {
	r := testrepo.New(t)
	for _, proxy := range []string{"off", "http://127.0.0.1:1"} {
		t.Setenv("GOPROXY", proxy)
		_, err := ours(t, r).Materialise()
		refused(t, err, 1, "example.com/up@v1.9.11", "module cache", "network", "OFFLINE=1")
		if r.Exists(srcDir) {
			t.Error("it left a tree behind")
		}
	}
	// Once the modules are in the cache the network is not asked.
	t.Setenv("GOPROXY", "file://"+r.Proxy)
	materialise(t, ours(t, r))
	t.Setenv("GOPROXY", "off")
	materialise(t, &Tree{Base: r.Base(t, testrepo.Name), Variant: base.Stock})
}

// buildable says whether the go command can build the tree's binary.
func buildable(t *testing.T, r *testrepo.Repo) error {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "example.com/up/cmd/hello")
	cmd.Dir = r.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %s", err, out)
	}
	return nil
}

// obstruct puts a folder where a file of the tree is to be written, which
// stops even root.
func obstruct(t *testing.T, file string) (remove func()) {
	t.Helper()
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(file, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInterrupted stops the writing of a tree in its middle. What is left must
// not build, nothing of it may count as somebody's edit, and the next run
// finishes the work, also when the input has changed since.
func TestInterrupted(t *testing.T) {
	changes := map[string]func(*testing.T, *testrepo.Repo){
		"same input": func(*testing.T, *testrepo.Repo) {},
		"patch changed since": func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, testrepo.Louder, `Shout("h`, `Shout("H`)
		},
		"overlay file gone since": func(t *testing.T, r *testrepo.Repo) {
			os.Remove(filepath.Join(r.Root, "pkg/ours/ours_test.go"))
		},
		"overlay file changed since": func(t *testing.T, r *testrepo.Repo) { r.Edit(t, testrepo.Overlay, `!"`, `!!!"`) },
	}
	for _, first := range []bool{true, false} {
		for name, change := range changes {
			t.Run(fmt.Sprintf("%s, first run %v", name, first), func(t *testing.T) {
				r := testrepo.New(t)
				if !first {
					materialise(t, ours(t, r))
					r.Edit(t, testrepo.Overlay, `"!"`, `"!!"`)
					r.Edit(t, testrepo.Louder, `Shout("hello")`, `Shout("hi")`)
				}
				remove := obstruct(t, filepath.Join(r.Root, srcDir, testrepo.Plain))
				if _, err := ours(t, r).Materialise(); err == nil {
					t.Fatal("the run was not interrupted")
				}
				if !first && strings.Contains(r.Read(t, srcDir+"/"+testrepo.Patched), "hello") {
					t.Fatal("nothing was written before the interruption: the test shows nothing")
				}
				if err := buildable(t, r); err == nil {
					t.Error("a half-written tree builds")
				}
				_, err := ours(t, r).Extract("")
				refused(t, err, 1, "half-written")
				remove()
				change(t, r)
				materialise(t, ours(t, r))
				if err := buildable(t, r); err != nil {
					t.Error(err)
				}
				sameAsFresh(t, r, ours(t, r))
			})
		}
	}
}

// sameAsFresh checks that the tree is what a first run makes.
func sameAsFresh(t *testing.T, r *testrepo.Repo, tr *Tree) {
	t.Helper()
	got := contents(t, tr.Dir())
	if err := os.RemoveAll(filepath.Join(r.Root, "_output")); err != nil {
		t.Fatal(err)
	}
	materialise(t, tr)
	want := contents(t, tr.Dir())
	if !maps.Equal(got, want) {
		for p := range maps.Keys(want) {
			if got[p] != want[p] {
				t.Errorf("%s is not what a first run writes:\n%s", p, got[p])
			}
			delete(got, p)
		}
		for p := range got {
			t.Errorf("%s is left over", p)
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, ".tmp") {
			return err
		}
		c, err := os.ReadFile(p)
		out[p] = string(c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestInterruptedGOPATH(t *testing.T) {
	r := testrepo.New(t)
	tr := &Tree{Base: r.Base(t, testrepo.GOPATHName), Variant: base.Ours}
	remove := obstruct(t, filepath.Join(tr.Dir(), testrepo.Plain))
	if _, err := tr.Materialise(); err == nil {
		t.Fatal("the run was not interrupted")
	}
	barrier := filepath.Join(tr.Dir(), "cmd/hello", barrierName)
	list := exec.Command("go", "list", "-e", "-f", "{{.Error}}", "./cmd/hello")
	list.Dir, list.Env = tr.Dir(), append(os.Environ(), "GO111MODULE=off")
	if out, err := list.CombinedOutput(); !strings.Contains(string(out), barrierName) {
		t.Errorf("the half-written tree's program: go list says %s (%v)", out, err)
	}
	if _, err := tr.Discard(); err != nil {
		t.Error(err)
	}
	if !isBarrier(barrier) {
		t.Error("discard took the barrier away")
	}
	remove()
	materialise(t, tr)
	if isBarrier(barrier) {
		t.Error("the barrier is left in a finished tree")
	}
	sameAsFresh(t, r, tr)
}

// TestKilled kills the writing process itself, many files into a large tree.
func TestKilled(t *testing.T) {
	if root := os.Getenv("HOLDFAST_TEST_MATERIALISE"); root != "" {
		b, err := base.Load(root, testrepo.Name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&Tree{Base: b, Variant: base.Ours}).Materialise()
		t.Fatal(err)
	}
	r := testrepo.New(t)
	files := maps.Clone(testrepo.Upstream)
	const n = 1500
	for i := range n {
		files[fmt.Sprintf("pkg/many/f%04d.go", i)] = fmt.Sprintf("package many\n\n// %s\n", strings.Repeat(fmt.Sprint(i), 2000))
	}
	sum, err := r.Publish(testrepo.Module, testrepo.Name, files)
	if err != nil {
		t.Fatal(err)
	}
	r.EditBase(t, testrepo.Name, func(b *base.Base) { b.Sum = sum })
	for _, after := range []int{1, n / 2, n - 200} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "HOLDFAST_TEST_MATERIALISE="+r.Root)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		mark := fmt.Sprintf("%s/pkg/many/f%04d.go", srcDir, after)
		for !r.Exists(mark) {
			select {
			case <-done:
				t.Skip("the process was done before it could be killed") // never seen
			case <-time.After(100 * time.Microsecond):
			}
		}
		_ = cmd.Process.Kill()
		<-done
		if r.Exists(srcDir + "/go.mod") {
			t.Errorf("killed after file %d: go.mod is there", after)
		}
	}
	res := materialise(t, ours(t, r))
	if res.Written > n {
		t.Errorf("the run after the kills wrote %d files: it did not resume", res.Written)
	}
	sameAsFresh(t, r, ours(t, r))
}

func TestDirtyTree(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*testing.T, *testrepo.Repo)
		says []string
	}{
		{"upstream file", func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/"+testrepo.Plain, "plain.", "fancy.") }, []string{testrepo.Plain + " (changed)"}},
		{"overlay file", func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/"+testrepo.OverlayPkg, "ours", "mine") }, []string{testrepo.OverlayPkg + " (changed)"}},
		{"new file", func(t *testing.T, r *testrepo.Repo) { r.Write(t, srcDir+"/pkg/new/new.go", "package new\n") }, []string{"pkg/new/new.go (added)"}},
		{"file that would go", func(t *testing.T, r *testrepo.Repo) {
			r.Edit(t, srcDir+"/"+testrepo.OverlayPkg, "ours", "mine")
			os.Remove(filepath.Join(r.Root, testrepo.OverlayPkg))
		}, []string{testrepo.OverlayPkg + " (changed)"}},
		{"go.mod", func(t *testing.T, r *testrepo.Repo) { r.Edit(t, srcDir+"/go.mod", "go 1.20", "go 1.26") }, []string{"go.mod (changed)"}},
		{"many files", func(t *testing.T, r *testrepo.Repo) {
			for i := range 25 {
				r.Write(t, fmt.Sprintf("%s/pkg/new/f%02d.go", srcDir, i), "package new\n")
			}
		}, []string{"pkg/new/f19.go (added)\n  and 5 more"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := testrepo.New(t)
			materialise(t, ours(t, r))
			tc.edit(t, r)
			r.Write(t, "pkg/ours/more.go", "package ours\n") // something to do
			untouched(t, r, func() {
				_, err := ours(t, r).Materialise()
				refused(t, err, 1, append(tc.says, srcDir, "edited by hand", "make patches-extract", "make discard-edits")...)
			})
			gave, err := ours(t, r).Discard()
			if err != nil || len(gave) == 0 {
				t.Fatalf("discard: %v, %v", gave, err)
			}
			materialise(t, ours(t, r))
			sameAsFresh(t, r, ours(t, r))
		})
	}
	t.Run("an edit that is what would be written", func(t *testing.T) {
		r := testrepo.New(t)
		materialise(t, ours(t, r))
		for _, file := range []string{testrepo.OverlayPkg, srcDir + "/" + testrepo.OverlayPkg} {
			r.Edit(t, file, `"ours"`, `"mine"`)
		}
		if res := materialise(t, ours(t, r)); res.Written != 0 {
			t.Errorf("%+v", res)
		}
	})
	t.Run("files of tests that are not Go", func(t *testing.T) {
		r := testrepo.New(t)
		materialise(t, ours(t, r))
		r.Write(t, srcDir+"/pkg/greet/out.tmp", "left by a test")
		if res := materialise(t, ours(t, r)); !res.UpToDate {
			t.Errorf("%+v", res)
		}
	})
}

func TestGenerated(t *testing.T) {
	r := testrepo.New(t)
	tr := ours(t, r)
	materialise(t, tr)
	from := filepath.Join(r.Root, "gen.go")
	add := func(content string) error {
		t.Helper()
		r.Write(t, "gen.go", content)
		return tr.AddGenerated("pkg/gen/zz.go", from)
	}
	if err := add("package gen\n"); err != nil {
		t.Fatal(err)
	}
	if res := materialise(t, tr); !res.UpToDate {
		t.Errorf("after a generated file was added: %+v", res)
	}
	// It outlives a change of the rest and is renewed by the next generation.
	r.Write(t, "pkg/ours/more.go", "package ours\n")
	materialise(t, tr)
	if err := add("package gen // 2\n"); err != nil {
		t.Fatal(err)
	}
	if got := r.Read(t, srcDir+"/pkg/gen/zz.go"); got != "package gen // 2\n" {
		t.Error(got)
	}
	// It is not anybody's to edit.
	r.Edit(t, srcDir+"/pkg/gen/zz.go", "2", "3")
	_, err := tr.Materialise()
	refused(t, err, 1, "pkg/gen/zz.go (changed)")
	_, err = tr.Extract("")
	refused(t, err, 1, "pkg/gen/zz.go", "generated", "make discard-edits")
	if _, err := tr.Discard(); err != nil {
		t.Fatal(err)
	}
	materialise(t, tr)
	if err := add("package gen // 2\n"); err != nil {
		t.Fatal(err)
	}
	if res := materialise(t, tr); !res.UpToDate || !r.Exists(srcDir+"/pkg/gen/zz.go") {
		t.Errorf("after discard: %+v", res)
	}
	// Somebody's file of that name is not overwritten.
	r.Write(t, srcDir+"/pkg/gen/zz2.go", "mine")
	if err := tr.AddGenerated("pkg/gen/zz2.go", from); err == nil || r.Read(t, srcDir+"/pkg/gen/zz2.go") != "mine" {
		t.Error("a file in the way of a generated one was overwritten:", err)
	}
}

func TestOpenAPIInput(t *testing.T) {
	r := testrepo.New(t)
	r.EditBase(t, testrepo.Name, func(b *base.Base) { b.OpenAPI = &base.OpenAPI{Generator: "example.com/up/gen"} })
	mark := "package x\n\n// +k8s:openapi-gen=true\n"
	r.Write(t, "pkg/types/types.go", mark)
	r.Write(t, "pkg/tests/x_test.go", mark)
	r.Write(t, "pkg/zz/zz_generated.go", mark)
	r.Write(t, "staging/src/k8s.io/api/core/holdfast.go", mark)
	input := func() *OpenAPIInput {
		t.Helper()
		materialise(t, ours(t, r))
		in, err := ours(t, r).OpenAPIInput()
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	first := input()
	if got := strings.Join(first.Packages, " "); got != "example.com/up/pkg/types k8s.io/api/core" {
		t.Error(got)
	}
	r.Write(t, "pkg/ours/more.go", "package ours\n")
	if input().Key != first.Key {
		t.Error("a file that asks for no definitions changed the key")
	}
	r.Write(t, "pkg/types/more.go", "package x\n")
	if input().Key == first.Key {
		t.Error("a file of a package that asks for definitions did not change the key")
	}
	// Pins count for a generator that is not in the tree, and only for that.
	for generator, want := range map[string]bool{"example.com/up/gen": true, "example.com/up/cmd/hello": false} {
		r.EditBase(t, testrepo.Name, func(b *base.Base) { b.OpenAPI.Generator = generator })
		before := input().Key
		r.Write(t, "go.sum", r.Read(t, "go.sum")+"example.com/third v1.2.3 h1:x\n")
		if changed := input().Key != before; changed != want {
			t.Errorf("generator %s: other pins changed the key: %v, want %v", generator, changed, want)
		}
	}
}

func TestRootMod(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	for _, v := range b.VariantNames() {
		materialise(t, &Tree{Base: b, Variant: v})
	}
	if file, err := ours(t, r).RootMod(); file != "" || err != nil {
		t.Errorf("our variant is the root's own go.mod: %q, %v", file, err)
	}
	before := r.Read(t, "go.mod")
	file, err := (&Tree{Base: b, Variant: base.Stock}).RootMod()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"module holdfast\n", "example.com/up => ./" + stockDir + "\n",
		"k8s.io/api => ./" + stockDir + "/staging/src/k8s.io/api\n", "example.com/fork => ./" + stockDir + "/" + testrepo.ForkDir + "\n"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s lacks %q:\n%s", file, want, raw)
		}
	}
	if strings.Contains(string(raw), srcDir) || r.Read(t, "go.mod") != before {
		t.Error("stock is built from our tree, or the root's go.mod was changed")
	}
	list := exec.Command("go", "list", "-modfile="+file, "-f", "{{.Dir}}", "example.com/up/pkg/greet")
	list.Dir = r.Root
	if out, err := list.CombinedOutput(); strings.TrimSpace(string(out)) != filepath.Join(r.Root, stockDir, "pkg/greet") {
		t.Errorf("go list: %s (%v)", out, err)
	}
}

// TestPins: a base's own go.mod and go.sum are taken instead of the root's.
func TestPins(t *testing.T) {
	r := testrepo.New(t)
	r.Write(t, "bases/v1.9.11/go.mod", strings.NewReplacer("module holdfast", "module holdfast/bases/v1.9.11",
		"example.com/fork v1.0.0", "example.com/fork v1.0.0\n\texample.com/third v1.2.3").Replace(r.Read(t, "go.mod")))
	r.Write(t, "bases/v1.9.11/go.sum", "example.com/third v1.2.3 h1:x\n")
	r.EditBase(t, testrepo.Name, func(b *base.Base) { b.Pins = "bases/v1.9.11" })
	tr := ours(t, r)
	materialise(t, tr)
	if mod, sum := r.Read(t, srcDir+"/go.mod"), r.Read(t, srcDir+"/go.sum"); !strings.Contains(mod, "example.com/third v1.2.3") || !strings.Contains(sum, "third") {
		t.Errorf("%s%s", mod, sum)
	}
	// They build the root module all the same.
	stock := &Tree{Base: tr.Base, Variant: base.Stock}
	materialise(t, stock)
	file, err := stock.RootMod()
	if err != nil {
		t.Fatal(err)
	}
	if mod, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(mod), "module holdfast\n") {
		t.Errorf("%s: %s, %v", file, mod, err)
	}
	r.EditBase(t, testrepo.Name, func(b *base.Base) { b.Pins = "bases/none" })
	_, err = ours(t, r).Materialise()
	refused(t, err, 1, "bases/none/go.mod")
}

func TestLock(t *testing.T) {
	r := testrepo.New(t)
	tr := ours(t, r)
	unlock, err := tr.lock()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := tr.Materialise(); done <- err }()
	select {
	case err := <-done:
		t.Fatal("Materialise did not wait for the lock:", err)
	case <-time.After(100 * time.Millisecond):
	}
	// The other variant is not held up.
	if _, err := (&Tree{Base: tr.Base, Variant: base.Stock}).Materialise(); err != nil {
		t.Error(err)
	}
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// A lock dies with its process, so nothing is to be cleaned after a crash.
	f, err := os.Open(filepath.Join(r.Root, "_output/src/v1.9.11/ours.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Error("the lock is still held:", err)
	}
}

func TestKeyNamesEachInput(t *testing.T) {
	r := testrepo.New(t)
	seen := map[string]string{}
	for _, tc := range []struct {
		name   string
		change func()
	}{
		{"nothing", func() {}},
		{"overlay content", func() { r.Edit(t, testrepo.Overlay, `"!"`, `"?"`) }},
		{"overlay file", func() { r.Write(t, "pkg/ours/more.go", "package ours\n") }},
		{"patch", func() { r.Edit(t, testrepo.Louder, `Shout("hello")`, `Shout("hey")`) }},
		{"number of a patch", func() {
			if err := os.Rename(filepath.Join(r.Root, testrepo.Louder), filepath.Join(r.Root, testrepo.Louder2)); err != nil {
				t.Fatal(err)
			}
		}},
		{"pins", func() { r.Edit(t, "go.mod", "go 1.26\n", "go 1.26.0\n") }},
		{"base", func() { r.EditBase(t, testrepo.Name, func(b *base.Base) { b.Release = "v2" }) }},
	} {
		tc.change()
		key, err := ours(t, r).Key()
		if err != nil {
			t.Fatal(err)
		}
		if was := seen[key]; was != "" {
			t.Errorf("%q has the key of %q", tc.name, was)
		}
		seen[key] = tc.name
	}
}
