// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the width of prose.
const maxColumns = 100

func TestWidth(t *testing.T) { report(t, wideLines(checkout(t))) }

// wideLines finds lines of prose in pages that are wider than maxColumns. Tables,
// pictures, code, and a line that is a single word or link may be wider.
func wideLines(r *repo) []string {
	var bad []string
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, ".md") }) {
		fenced, code, before := false, false, ""
		for i, l := range strings.Split(string(r.files[p]), "\n") {
			trimmed := strings.TrimSpace(l)
			if strings.HasPrefix(trimmed, "```") {
				fenced = !fenced
			}
			// Four columns after an empty line, and what follows it in the same way.
			code = strings.HasPrefix(l, "    ") && (before == "" || code)
			before = trimmed
			n := utf8.RuneCountInString(l)
			if fenced || code || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "![") || n <= maxColumns {
				continue
			}
			word := linkRE.ReplaceAllString(strings.TrimLeft(trimmed, "*-+>0123456789. "), "]")
			if strings.Contains(word, " ") {
				bad = append(bad, fmt.Sprintf("%s:%d has %d columns: wrap prose at %d", p, i+1, n, maxColumns))
			}
		}
	}
	return bad
}

func TestFindsWideLines(t *testing.T) {
	long := strings.Repeat("word ", 20) + "x"
	path := strings.Repeat("folder/", 20)
	found(t, wideLines(files(
		"a.md", long[:99]+"\n"+strings.Repeat("ü", 100)+"\n| "+long+" |\n\n```\n"+long+"\n```\n\n    "+long+"\n    "+long+"\n* [link]("+path+")\n!["+long+"](a.svg)\n"+path+"\n",
		"b.go", "// "+long+"\n")))
	found(t, wideLines(files("a.md", "* one\n    "+long+"\n\n"+long+"\n[a]("+path+") and [b](c)\n")), "a.md:2 has 105 columns", "a.md:4 has 101", "a.md:5 has ")
}
