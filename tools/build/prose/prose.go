// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prose breaks text into lines, for pages and comments that the tools write.
package prose

import (
	"strings"
	"unicode/utf8"
)

// Lines are the words of text in lines of at most width characters; a longer word has a line of
// its own.
func Lines(text string, width int) []string {
	var out []string
	column := 0
	for _, w := range strings.Fields(text) {
		n := utf8.RuneCountInString(w)
		if len(out) == 0 || column+1+n > width {
			out = append(out, w)
			column = n
			continue
		}
		out[len(out)-1] += " " + w
		column += 1 + n
	}
	return out
}
