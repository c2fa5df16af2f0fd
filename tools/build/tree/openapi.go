// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"holdfast/tools/build/exit"
)

// OpenAPIFile is the generated file that upstream's module lacks.
const OpenAPIFile = "pkg/generated/openapi/zz_generated.openapi.go"

// OpenAPIInput is what the openapi definitions are generated from.
type OpenAPIInput struct {
	Key      string   // sum over the files of Packages
	Packages []string // import paths, sorted
}

// OpenAPIInput finds the packages whose types ask for definitions.
func (t *Tree) OpenAPIInput() (*OpenAPIInput, error) {
	m, err := t.loadManifest()
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	files := sortedKeys(m.Files)
	for _, p := range files {
		if !wantsOpenAPI(p) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(p)))
		if err != nil {
			return nil, err
		}
		if bytes.Contains(content, []byte("+k8s:openapi-gen=")) {
			dirs[path.Dir(p)] = true
		}
	}
	h := sha256.New()
	fmt.Fprintln(h, t.Base.OpenAPI.Generator)
	inTree := false
	for _, p := range files {
		inTree = inTree || path.Dir(p) == t.dirOf(t.Base.OpenAPI.Generator)
		if dirs[path.Dir(p)] || strings.Contains(p, "/openapi-gen/") || p == t.Base.OpenAPI.Violations {
			fmt.Fprintln(h, p, m.Files[p].Sum)
		}
	}
	if !inTree { // it is another with other pins
		p, err := t.pins()
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(h, sha(p.mod), sha(p.sum), t.Base.Require)
	}
	in := &OpenAPIInput{Key: hex.EncodeToString(h.Sum(nil))[:16]}
	for _, d := range sortedKeys(dirs) {
		if rest, ok := strings.CutPrefix(d, "staging/src/"); ok {
			in.Packages = append(in.Packages, rest)
		} else {
			in.Packages = append(in.Packages, path.Join(t.Base.Module, d))
		}
	}
	return in, nil
}

// dirOf is the folder of a package of upstream's or of a staging repository, relative to the tree.
func (t *Tree) dirOf(pkg string) string {
	if rest, ok := strings.CutPrefix(pkg, t.Base.Module+"/"); ok {
		return rest
	}
	return "staging/src/" + pkg
}

// wantsOpenAPI leaves out tests, the generators' own examples and what they
// have already written.
func wantsOpenAPI(p string) bool {
	if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || strings.Contains(path.Base(p), "zz_") {
		return false
	}
	if strings.Contains(p, "code-generator/") || strings.Contains(p, "go2idl/") {
		return false
	}
	for _, top := range []string{"pkg/", "cmd/", "plugin/", "staging/src/k8s.io/"} {
		if strings.HasPrefix(p, top) {
			return true
		}
	}
	return false
}

// AddGenerated puts a generated file into the tree and its manifest. Like a
// file of upstream's it must not be edited by hand.
func (t *Tree) AddGenerated(file, from string) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	m, err := t.loadManifest()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	old, ok := m.Files[file]
	if !ok {
		if have, err := os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(file))); err == nil && sha(have) != sha(content) {
			return exit.Preconditionf("%s/%s is generated, and another file of that name was put there: remove it", t.rel(t.Dir()), file)
		}
	}
	e, _, err := put(t.Dir(), file, fromBytes(content), old)
	if err != nil || (ok && e == old) {
		return err
	}
	if m.Generated == nil {
		m.Generated = map[string]bool{}
	}
	m.Files[file], m.Generated[file] = e, true
	return t.saveManifest(m)
}
