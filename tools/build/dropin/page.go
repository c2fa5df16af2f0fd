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
	"What `make dropin` sees of Holdfast's binaries that is not as in stock v1.9.11, by the fix that\n" +
	"makes it. `make differences` writes this page from the `fix.json` of the [fixes](../../patches). Do\n" +
	"not edit it. Metrics are not listed: each is named after its fix, `holdfast_<fix>_…`.\n\n" +
	"`make dropin` compares the builds ([how](dropin.md)). It fails on a difference that is of no fix,\n" +
	"and on one that it does not see any more. *Gates off* is Holdfast with all its feature gates at\n" +
	"false but `" + StaysOn + "`: on is what stock does. A difference that is still there then\n" +
	"has no gate; the fix's page says why.\n"

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
		b.WriteString("| component | seen as | what | how | with gates off | why |\n|---|---|---|---|---|---|\n")
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
		off = "only then"
	case slices.Contains(e.Builds, GatesOff):
		off = "too"
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
