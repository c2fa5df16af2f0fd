// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/patch"
)

// repo is a checkout: its files by their paths.
type repo struct {
	root  string
	files map[string][]byte
}

// paths are those of the files that keep accepts, sorted.
func (r *repo) paths(keep func(p string) bool) []string {
	var out []string
	for p := range r.files {
		if keep(p) {
			out = append(out, p)
		}
	}
	sort.Strings(out)
	return out
}

// checkout reads the files that are or could be committed: what git knows and
// does not ignore; outside of git everything but what is generated.
func checkout(t *testing.T) *repo {
	t.Helper()
	// The go command caches a test by the files that it reads inside the module
	// and by the environment; most of these lie outside of tools/. make test sets
	// another value each time, by hand use -count=1.
	_ = os.Getenv("HOLDFAST_TEST_RUN")
	root, err := base.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	r := &repo{root: root, files: map[string][]byte{}}
	names, err := gitFiles(root)
	if err != nil {
		if names, err = walk(root); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(n)))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		r.files[n] = content
	}
	if len(r.files) < 50 || r.files["README.md"] == nil {
		t.Fatalf("%s does not look like the repository: %d files", root, len(r.files))
	}
	return r
}

func gitFiles(root string) ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, err
	}
	return slices.Compact(strings.Split(strings.Trim(string(out), "\x00"), "\x00")), nil
}

func walk(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == ".git" || name == "_output" || name == "vendor") {
			return fs.SkipDir
		}
		if !d.IsDir() {
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	return out, err
}

// bases loads all base.json.
func bases(t *testing.T, root string) []*base.Base {
	t.Helper()
	out, err := base.All(root)
	if err != nil || len(out) == 0 {
		t.Fatal(out, err)
	}
	return out
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}

func TestOnlyOurOwnFiles(t *testing.T) { report(t, strayFiles(checkout(t))) }

// TestNoUpstreamFile needs the modules of the bases that we patch. It takes
// them from the module cache, or downloads them as make does.
func TestNoUpstreamFile(t *testing.T) {
	r := checkout(t)
	c := newCopies(r)
	for _, b := range bases(t, r.root) {
		if b.HasVariant(base.Ours) != nil {
			continue
		}
		dir, err := moduleDir(b.Module + "@" + b.Version)
		if err != nil {
			t.Fatalf("%s@%s is not available, so that nothing can be compared with it: %v", b.Module, b.Version, err)
		}
		if err := c.compare(dir, b.Version); err != nil {
			t.Fatal(err)
		}
	}
	if c.seen < 5000 {
		t.Errorf("only %d files of upstream's were looked at", c.seen)
	}
	report(t, c.faults)
}

func TestPatches(t *testing.T) {
	root := checkout(t).root
	for _, b := range bases(t, root) {
		patches, err := patch.Load(root, b.Fixes.Patches(b.Name))
		if err != nil || len(patches) == 0 {
			t.Errorf("base %s has %d patches: %v", b.Name, len(patches), err)
		}
		for _, p := range patches {
			report(t, p.Check())
		}
	}
}

func TestLinks(t *testing.T) { report(t, deadLinks(checkout(t))) }

func TestScripts(t *testing.T) {
	r := checkout(t)
	scripts := r.paths(func(p string) bool { return isScript(p, r.files[p]) })
	if len(scripts) < 2 {
		t.Fatalf("found the scripts %q only", scripts)
	}
	shellcheck, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Fatalf("shellcheck is missing, which checks %d scripts: run hack/install-test-packages.sh", len(scripts))
	}
	for _, p := range scripts {
		report(t, scriptFaults(p, r.files[p]))
		if info, err := os.Stat(filepath.Join(r.root, p)); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s is not executable (chmod +x)", p)
		}
	}
	cmd := exec.Command(shellcheck, append([]string{"--norc", "--external-sources", "--source-path=SCRIPTDIR", "--"}, scripts...)...)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}

func TestGoFiles(t *testing.T) { report(t, goFaults(checkout(t))) }

func TestText(t *testing.T) { report(t, textFaults(checkout(t))) }

func TestNamedTests(t *testing.T) { report(t, goneTests(checkout(t))) }

func TestMakefile(t *testing.T) {
	r := checkout(t)
	report(t, makefileFaults(string(r.files["Makefile"])))
	targets, _ := makefileTargets(string(r.files["Makefile"]))
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, ".md") }) {
		for _, m := range makeCallRE.FindAllStringSubmatch(string(r.files[p]), -1) {
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s tells to run make %s, and the Makefile has no such target", p, m[1])
			}
		}
	}
}

// moduleDir is the folder of a module in the module cache.
func moduleDir(mod string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", mod)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.Output()
	_, rest, ok := bytes.Cut(out, []byte(`"Dir": "`))
	if err != nil || !ok {
		return "", fmt.Errorf("go mod download %s: %v: %s", mod, err, out)
	}
	dir, _, _ := strings.Cut(string(rest), `"`)
	return dir, nil
}

// TestDirections: what may know what. Test files may know more.
func TestDirections(t *testing.T) {
	root := checkout(t).root
	for _, d := range directions {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", d.of)
		cmd.Dir = filepath.Join(root, "tools")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", d.of, err)
		}
		report(t, directionFaults(d, strings.Fields(string(out))))
	}
}

// TestFloors: no import runs up. Test files may know more.
func TestFloors(t *testing.T) { report(t, floorFaults(importsOf(t, "./..."))) }

// TestLayers: the packages of the kit import downwards only. Test files may know more.
func TestLayers(t *testing.T) { report(t, layerFaults(kitLayers, importsOf(t, "./labkit/..."))) }

// importsOf are the imports of packages of tools/, by their import path.
func importsOf(t *testing.T, packages string) map[string][]string {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, packages)
	cmd.Dir = filepath.Join(checkout(t).root, "tools")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", packages, err)
	}
	imports := map[string][]string{}
	for _, l := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Fields(l)
		imports[f[0]] = f[1:]
	}
	return imports
}
