// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	// maxLines is the length of a Go file that needs no reason.
	maxLines = 400
	// overview lists longer ones with their reasons.
	overview = "docs/design/overview.md"
)

func TestLength(t *testing.T) { report(t, longFiles(checkout(t))) }

// longFiles finds Go files of more than maxLines lines that the overview gives
// no reason for, and files there that are gone.
func longFiles(r *repo) []string {
	_, rest, _ := strings.Cut(string(r.files[overview]), fmt.Sprintf("Files of more than %d lines", maxLines))
	section, _, _ := strings.Cut(rest, "\n#")
	var listed, bad []string
	for _, row := range strings.Split(section, "\n") {
		if cells := strings.Split(row, "|"); strings.HasPrefix(row, "|") && len(cells) == 4 && strings.TrimSpace(cells[2]) != "" {
			for _, m := range exampleRE.FindAllStringSubmatch(cells[1], -1) {
				listed = append(listed, m[1])
			}
		}
	}
	for _, p := range listed {
		if r.files[p] == nil {
			bad = append(bad, fmt.Sprintf("%s: the long file %s is not there", overview, p))
		}
	}
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, ".go") }) {
		if n := bytes.Count(r.files[p], []byte("\n")); n > maxLines && !slices.Contains(listed, p) {
			bad = append(bad, fmt.Sprintf("%s has %d lines: split it, or give the reason in the table of long files in %s", p, n, overview))
		}
	}
	return bad
}

func TestFindsLongFiles(t *testing.T) {
	long := "package x\n" + strings.Repeat("// x\n", maxLines)
	page := "# x\n\nFiles of more than 400 lines, and why:\n\n| file | reason |\n|---|---|\n| `a.go`, `b/b.go` | one subject |\n| `c.go` | |\n\n# Next\n\n| `d.go` | elsewhere |\n"
	found(t, longFiles(files(overview, page, "a.go", long, "b/b.go", "package b\n", "e.go", long[:len(long)-5], "f.md", long)))
	found(t, longFiles(files(overview, page, "a.go", long, "c.go", long, "d.go", long)), "the long file b/b.go is not there", "c.go has 401 lines", "d.go has 401 lines")
	found(t, longFiles(files("a.go", long)), "a.go has 401 lines")
}
