// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// MarkdownFile is where the repository keeps the matrix, below the root.
const MarkdownFile = "docs/design/proof.md"

// WriteMarkdown writes the matrix as a page of the repository: a table for each base, with the
// commit of each run as a letter.
func (m *Matrix) WriteMarkdown(w io.Writer) error {
	answers, commits := m.Answers(), map[string]bool{}
	var first *Answer
	for _, a := range answers {
		if a.Result != nil {
			commits[a.Commit()] = true
			if first == nil {
				first = a
			}
		}
	}
	if first == nil {
		return fmt.Errorf("no run of the matrix has an answer: run lab proof first")
	}
	letters := map[string]string{}
	var legend []string
	for i, c := range slices.Sorted(maps.Keys(commits)) {
		letters[c] = letter(i)
		legend = append(legend, fmt.Sprintf("%s is %s", letters[c], c))
	}
	var states []string
	counts := m.Counts()
	for _, s := range slices.Sorted(maps.Keys(counts)) {
		states = append(states, fmt.Sprintf("%d %s", counts[s], s))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The proof matrix\n\n`lab proof --write` writes this page from [matrix.json](../../matrix.json), which has the commit of\neach run in full; [labs](labs.md#proof) explains the columns.\n\n")
	fmt.Fprintf(&b, "Last change %s. Profile %s, seed %d. Of %d runs: %s.\n\n", m.Made.Format("2006-01-02"), first.Outcome.Profile, first.Outcome.Seed, len(answers), strings.Join(states, ", "))
	fmt.Fprintf(&b, "A letter is the commit of a run:\n\n")
	for _, l := range legend {
		fmt.Fprintf(&b, "* %s\n", l)
	}
	bases := []string{}
	for _, r := range m.Rows {
		if !slices.Contains(bases, r.Base) {
			bases = append(bases, r.Base)
		}
	}
	slices.Sort(bases)
	slices.Reverse(bases)
	for _, base := range bases {
		fmt.Fprintf(&b, "\n## Base %s\n\n| slug | lab | stock | ours | ours without it | gates off |\n|---|---|---|---|---|---|\n", base)
		for _, r := range m.Rows {
			if r.Base != base {
				continue
			}
			cells := []string{r.Slug, r.Lab}
			for _, a := range []*Answer{r.Stock, r.Ours, r.Minus, r.GateOff} {
				cells = append(cells, a.short(letters))
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// letter is a, b, …, z, a1, b1, …
func letter(i int) string {
	s := string(rune('a' + i%26))
	if i >= 26 {
		s += fmt.Sprint(i / 26)
	}
	return s
}

// short is an answer as a cell of a table; nothing for a column that does not apply.
func (a *Answer) short(letters map[string]string) string {
	switch {
	case a == nil:
		return ""
	case a.Result == nil:
		return "not run"
	}
	s := string(a.Outcome.Verdict)
	if state := a.State(); state != "right" && state != s {
		s += " (" + state + ")"
	}
	return s + " " + letters[a.Commit()]
}
