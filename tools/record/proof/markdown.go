// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"holdfast/tools/build/outcome"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/record/outcomes"
)

// MarkdownFile is where the repository keeps the matrix, below the root.
const MarkdownFile = "docs/design/proof.md"

// Markdown is the matrix as a page of the repository: a table for each base, with the commit and
// the day of each run as a letter.
func Markdown(rows []Row, record *outcomes.Record) string {
	made, letters := map[string]bool{}, map[string]string{}
	total, ran := map[Cell]bool{}, 0
	for _, r := range rows {
		for _, c := range r.Cells() {
			if total[*c] {
				continue
			}
			total[*c] = true
			if o := record.Find(c.Lab.Name, c.Variant); o != nil {
				made[madeOf(o)] = true
				ran++
			}
		}
	}
	var legend strings.Builder
	for i, m := range slices.Sorted(maps.Keys(made)) {
		letters[m] = letter(i)
		fmt.Fprintf(&legend, "* %s: %s\n", letters[m], m)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The proof matrix\n\n`%s` writes this page from [outcomes.json](../../%s);\n[labs](labs.md#the-record) explains the columns.\n\n", outcomes.Command, outcomes.File)
	fmt.Fprintf(&b, "%d of %d runs are recorded. The letter after a verdict stands for the run's day and commit:\n\n%s", ran, len(total), legend.String())
	var bases []string
	for _, r := range rows {
		if !slices.Contains(bases, r.Base) {
			bases = append(bases, r.Base)
		}
	}
	slices.Sort(bases)
	slices.Reverse(bases)
	for _, base := range bases {
		fmt.Fprintf(&b, "\n## Base %s\n\n| fix | lab | stock | ours | ours without it | gates off |\n|---|---|---|---|---|---|\n", base)
		for _, r := range rows {
			if r.Base != base {
				continue
			}
			cells := []string{r.Fix, ""}
			if r.Lab != nil {
				cells[1] = r.Lab.Name
			}
			for _, c := range []*Cell{r.Stock, r.Ours, r.Minus, r.GateOff} {
				cells = append(cells, answer(c, record, letters))
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// madeOf is the day of an outcome and its commit's first digits.
func madeOf(o *outcome.Outcome) string { return o.Date + ", " + o.Commit[:min(12, len(o.Commit))] }

// answer is a cell of a table; nothing for a column that does not apply.
func answer(c *Cell, record *outcomes.Record, letters map[string]string) string {
	if c == nil {
		return ""
	}
	o := record.Find(c.Lab.Name, c.Variant)
	if o == nil {
		return "not yet"
	}
	return string(o.Verdict) + " " + letters[madeOf(o)]
}

// letter is a, b, …, z, a1, b1, …
func letter(i int) string {
	s := string(rune('a' + i%26))
	if i >= 26 {
		s += fmt.Sprint(i / 26)
	}
	return s
}
