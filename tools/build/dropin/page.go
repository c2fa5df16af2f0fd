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
	"This page lists what differs between Holdfast's binaries and stock of the same base, seen from the\n" +
	"outside, for each fix that causes a difference. `make differences` writes this page from the\n" +
	"`fix.json` of the [fixes](../../patches); do not edit it. Metrics are not listed: each is named\n" +
	"after its fix, `holdfast_<fix>_…`.\n\n" +
	"`make dropin` and the lab dropin-cluster compare the builds ([how](dropin.md)). They fail if a\n" +
	"difference belongs to no fix, or if a listed difference no longer exists. \"With gates off\" means\n" +
	"Holdfast with all its feature gates set to false, except `" + StaysOn + "`, because stock\n" +
	"behaves as if this gate were true. In this column, *remains* means that the difference is there even\n" +
	"then. Either the difference is the name of a gate, which the binary accepts in any case, or no gate\n" +
	"controls the difference; then the fix's page says why.\n\n" +
	"In the column *what*, `*`, `…` and capital letters such as `NS` and `UID` stand for text that\n" +
	"varies.\n"

// Markdown is the page.
func Markdown(s *fixes.Table) ([]byte, error) {
	var b strings.Builder
	b.WriteString(introduction)
	tables := map[string]*Table{}
	for _, base := range Bases {
		var err error
		if tables[base], err = New(s, base); err != nil {
			return nil, err
		}
	}
	for _, fix := range s.Fixes {
		var rows []string
		bases, page := map[string][]string{}, ""
		for _, base := range Bases {
			for _, e := range tables[base].Differences {
				if e.Fix != fix.Name || slices.Contains(e.Kinds, "metric") { // all have metrics
					continue
				}
				r := row(e)
				if bases[r] == nil {
					rows = append(rows, r)
				}
				bases[r] = append(bases[r], base)
				if page == "" {
					page = fix.Form(base).Page
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", fix.Name)
		if page != "" {
			fmt.Fprintf(&b, "[%s](../../%s)\n\n", fix.Name, page)
		}
		b.WriteString("| base | component | kind | what | change | with gates off | explanation |\n|---|---|---|---|---|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s %s", strings.Join(bases[r], ", "), r)
		}
	}
	return []byte(b.String()), nil
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

// WritePage writes the page below root from the fixes that are there.
func WritePage(root string) error {
	s, err := fixes.Load(root)
	if err != nil {
		return err
	}
	text, err := Markdown(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(Page)), text, 0o644)
}
