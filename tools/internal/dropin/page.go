// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/internal/slugs"
)

const introduction = "# Differences from stock\n\n" +
	"What `make dropin` sees of our binaries that is not as in stock v1.9.11, by the slug that makes it.\n" +
	"`make differences` writes this page from\n" +
	"[differences.json](../../differences.json). Do not edit it.\n\n" +
	"`make dropin` compares the builds ([how](dropin.md)). It fails on a difference that is not in that\n" +
	"table, and on an entry that it does not see any more. *Gates off* is ours with its feature gates of\n" +
	"[slugs.json](../../slugs.json) at false, but `" + StaysOn + "`: on is what stock does. A\n" +
	"difference that is still there then has no gate; the slug's page says why.\n"

// Markdown is the page.
func Markdown(t *Table, s *slugs.Table) []byte {
	var b strings.Builder
	b.WriteString(introduction)
	for _, slug := range s.Of(Base) {
		var rows []string
		for _, e := range t.Differences {
			if e.Slug == slug.Name {
				rows = append(rows, row(e))
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", slug.Name)
		if page := slug.Form(Base).Page; page != "" {
			fmt.Fprintf(&b, "[%s](../%s)\n\n", path.Base(page), strings.TrimPrefix(page, "docs/"))
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
	t, err := Load(root)
	if err != nil {
		return err
	}
	s, err := slugs.Load(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(Page)), Markdown(t, s), 0o644)
}
