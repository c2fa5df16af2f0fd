// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/fixes"
)

const introduction = "# Differences from stock\n\n" +
	"This page lists what differs between Holdfast's binaries and stock v1.9.11, seen from the outside,\n" +
	"for each fix that causes a difference. `make differences` writes this page from the `fix.json` of\n" +
	"the [fixes](../../patches); do not edit it. Metrics are not listed: each is named after its fix,\n" +
	"`holdfast_<fix>_…`.\n\n" +
	"`make dropin` and the lab dropin-cluster compare the builds ([how](dropin.md)). They fail if a\n" +
	"difference belongs to no fix, or if a listed difference no longer exists. \"With gates off\" means\n" +
	"Holdfast with all its feature gates set to false, except `" + StaysOn + "`, because stock\n" +
	"behaves as if this gate were true. In this column, *remains* means that the difference is there even\n" +
	"then. Either the difference is the name of a gate, which the binary accepts in any case, or no gate\n" +
	"controls the difference; then the fix's page says why.\n\n" +
	"In the column *what*, `*`, `…` and capital letters such as `NS` and `UID` stand for text that\n" +
	"varies.\n"

// Markdown is the page.
func Markdown(t *Table, s *fixes.Table) []byte {
	var b strings.Builder
	b.WriteString(introduction)
	for _, fix := range s.Of(Base) {
		var rows []string
		for _, e := range t.Differences {
			if e.Fix == fix.Name && !slices.Contains(e.Kinds, "metric") { // all have metrics
				rows = append(rows, row(e))
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", fix.Name)
		if page := fix.Form(Base).Page; page != "" {
			fmt.Fprintf(&b, "[%s](../../%s)\n\n", fix.Name, page)
		}
		b.WriteString("| component | kind | what | change | with gates off | explanation |\n|---|---|---|---|---|---|\n")
		for _, r := range rows {
			b.WriteString(r)
		}
	}
	return []byte(b.String())
}

func row(e Entry) string {
	var names []string
	for _, n := range e.Names {
		names = append(names, "`"+strings.ReplaceAll(n, "|", `\|`)+"`")
	}
	off := "as stock"
	switch {
	case !slices.Contains(e.Builds, Ours):
		off = "only with gates off"
	case slices.Contains(e.Builds, GatesOff):
		off = "remains"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", strings.Join(e.Components, ", "), strings.Join(e.Kinds, ", "),
		strings.Join(names, ", "), e.How, off, strings.ReplaceAll(e.Says, "|", `\|`))
}

// WritePage writes the page below root from the table that is there.
func WritePage(root string) error {
	s, err := fixes.Load(root)
	if err != nil {
		return err
	}
	t, err := New(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(Page)), Markdown(t, s), 0o644)
}
