// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/slugs"
)

// matrixFile is written by `lab proof --write` (package proof, which links the labs).
const matrixFile = "docs/design/proof.md"

// TestMatrix: the proof matrix has each slug with a lab, and no run that is missing or wrong.
// How old its runs are is not looked at: a run takes longer than a commit.
func TestMatrix(t *testing.T) {
	r := checkout(t)
	table, err := slugs.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range table.Slugs {
		if slices.ContainsFunc(s.Forms, func(f *slugs.Form) bool { return len(f.Labs) > 0 }) {
			names = append(names, s.Name)
		}
	}
	report(t, matrixFaults(string(r.files[matrixFile]), names))
}

func matrixFaults(page string, names []string) []string {
	var bad []string
	for _, n := range names {
		if !strings.Contains(page, "\n| "+n+" | ") {
			bad = append(bad, fmt.Sprintf("%s has no row of %s: run lab proof --write", matrixFile, n))
		}
	}
	for _, word := range []string{"not run", "(wrong)", "inconclusive", "(stale)"} {
		if strings.Contains(page, word) {
			bad = append(bad, fmt.Sprintf("%s has a run that is %s: run lab proof --write", matrixFile, strings.Trim(word, "()")))
		}
	}
	return bad
}

func TestFindsMatrixFaults(t *testing.T) {
	found(t, matrixFaults("\n| one | lab | reproduced a | absent (wrong) a |", []string{"one", "two"}),
		"docs/design/proof.md has no row of two", "a run that is wrong")
}
