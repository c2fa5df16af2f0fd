// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var pseudoRE = regexp.MustCompile(`-([0-9a-f]{12})(\+incompatible)?$`)

// TestDeviations holds the pins of each base against upstream's Godeps.json: each that is another
// revision has a true row in the base's deviations.md.
func TestDeviations(t *testing.T) {
	for _, b := range pinnedBases(t) {
		t.Run(b.Base, func(t *testing.T) { deviations(t, b) })
	}
}

func deviations(t *testing.T, b pinnedBase) {
	pins := pinned(t, b.pinFolder())
	documented := map[string][2]string{} // module -> first digits of upstream's revision, pin
	page := filepath.Join(root, "bases", b.Base, "deviations.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([0-9a-f]{12})` \\| `([^`]+)` \\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = [2]string{m[2], m[3]}
	}
	found := map[string]bool{}
	for _, d := range godeps(t, b) {
		module := moduleOf(d.ImportPath, pins)
		if module == "" {
			continue // linked by none of our binaries, or go build would say so
		}
		version := pins[module]
		if exact(version, d) {
			continue
		}
		found[module] = true
		doc, ok := documented[module]
		switch {
		case !ok:
			t.Errorf("%s is pinned at %s, upstream's %s is at %s (%s): write a row into %s, or pin that", module, version, d.ImportPath, d.Rev, d.Comment, page)
		case doc[0] != d.Rev[:12]:
			t.Errorf("deviations.md has %s for upstream's revision of %s, Godeps.json has %s", doc[0], module, d.Rev)
		case doc[1] != version:
			t.Errorf("deviations.md has %s for the pin of %s, go.mod has %s", doc[1], module, version)
		}
	}
	for module := range documented {
		if !found[module] {
			t.Errorf("deviations.md has a row for %s, which does not deviate", module)
		}
	}
	if len(found) == 0 || len(documented) == 0 {
		t.Errorf("%d deviations, %d rows: the comparison itself is broken", len(found), len(documented))
	}
}

type godep struct{ ImportPath, Comment, Rev string }

func exact(version string, d godep) bool {
	if m := pseudoRE.FindStringSubmatch(version); m != nil {
		return strings.HasPrefix(d.Rev, m[1])
	}
	return strings.TrimSuffix(version, "+incompatible") == d.Comment
}

// godeps reads upstream's list from its module.
func godeps(t *testing.T, b pinnedBase) []godep {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", b.Module+"@"+b.Version)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s@%s is not available: %v: %s", b.Module, b.Version, err, out)
	}
	var mod struct{ Dir string }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(mod.Dir, "Godeps/Godeps.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Deps []godep }
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	return list.Deps
}

// pinned maps each module that the go.mod in a folder requires to its version, or to that of the
// module that replaces it.
func pinned(t *testing.T, folder string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type module struct{ Path, Version string }
	var mod struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	pins := map[string]string{}
	for _, r := range mod.Require {
		pins[r.Path] = r.Version
	}
	for _, r := range mod.Replace {
		if r.New.Version != "" {
			pins[r.Old.Path] = r.New.Version
		}
	}
	return pins
}

// moduleOf finds the module with the longest path that holds pkg.
func moduleOf(pkg string, pins map[string]string) string {
	for p := pkg; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
		if _, ok := pins[p]; ok {
			return p
		}
	}
	return ""
}
