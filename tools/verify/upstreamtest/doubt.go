// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
)

// doubtful are those of packages, which both trees have, that the stock tree has to test too when
// ours has been tested: where a test failed or was skipped in ours, where a failure is known, and
// where a test file of stock is not in ours as it is. In all others the tests that stock has
// passed in ours.
func doubtful(b *base.Base, packages []string, ours *Outcome, known Known) ([]string, error) {
	dirs, err := builder.TouchedDirs(b)
	if err != nil {
		return nil, err
	}
	dirOf := map[string]string{}
	for _, d := range dirs {
		dirOf[builder.ImportPath(b, d)] = filepath.FromSlash(d)
	}
	in := map[string]bool{}
	note := func(test string) {
		pkg, _, _ := strings.Cut(test, " ")
		in[pkg] = true
	}
	for _, t := range ours.Failed {
		note(t)
	}
	for t := range ours.Skipped {
		note(t)
	}
	for t := range known {
		note(t)
	}
	var out []string
	for _, p := range packages {
		dir, ok := dirOf[p]
		if !ok { // nothing of ours touches it
			var in bool
			if dir, in = strings.CutPrefix(p, b.Module+"/"); !in {
				return nil, fmt.Errorf("%s: no folder of the tree is this package", p)
			}
			dir = filepath.FromSlash(dir)
		}
		same, err := sameTests(filepath.Join(b.SrcDir(base.Stock), dir), filepath.Join(b.SrcDir(base.Ours), dir))
		if err != nil {
			return nil, err
		}
		if in[p] || !same {
			out = append(out, p)
		}
	}
	return out, nil
}

// sameTests says whether each test file of the folder stock is in ours, to the byte.
func sameTests(stock, ours string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(stock, "*_test.go"))
	if err != nil {
		return false, err
	}
	for _, f := range files {
		was, err := os.ReadFile(f)
		if err != nil {
			return false, err
		}
		is, err := os.ReadFile(filepath.Join(ours, filepath.Base(f)))
		if err != nil && !os.IsNotExist(err) {
			return false, err
		}
		if err != nil || !bytes.Equal(was, is) {
			return false, nil
		}
	}
	return true, nil
}
