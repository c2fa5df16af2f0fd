// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"fmt"
	"slices"
	"strings"
)

// Page is the page that is written from the table, from the root of the repository.
const Page = "docs/user/codes.md"

// Code is one row of the table of codes. A code is never used again for something else.
type Code struct {
	Code string
	// Level is what Of gives; Also are the levels that At may give.
	Level Level
	Also  []Level
	// Title is a few words, About is what the page says: what it means, why it matters and what
	// to do. It is Markdown, each paragraph of it one text.
	Title string
	About []string
	// By are the commands that give it.
	By []string
}

// Page is where the code is explained.
func (c *Code) Page() string { return Page + "#" + strings.ToLower(c.Code) }

// Codes are all codes in order: those of every command in the program.
func Codes() []Code {
	all := slices.Concat(forecastCodes, nodeCodes, kcmCodes, doctorCodes)
	slices.SortStableFunc(all, func(a, b Code) int { return strings.Compare(a.Code, b.Code) })
	return all
}

// Lookup is a code's row, nil if there is none.
func Lookup(code string) *Code {
	for _, list := range [][]Code{forecastCodes, nodeCodes, kcmCodes, doctorCodes} {
		for i := range list {
			if list[i].Code == code {
				return &list[i]
			}
		}
	}
	return nil
}

// Markdown is the page of the codes.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`<!-- Written from cmd/internal/finding: go test ./internal/finding -update in cmd/ -->
# The codes of kubectl-holdfast

`)
	para := func(prefix, text string) {
		for _, l := range wrapAny(text, 100-len(prefix)) {
			b.WriteString(prefix + l + "\n")
		}
		b.WriteString("\n")
	}
	para("", "Each finding of `kubectl holdfast` has a code. A code keeps its meaning in all later releases, so scripts and alerts can rely on it. The levels, worst first, are `STOP` (do not continue), `new` (a container is recreated), `warn` (something changes that someone may notice), `?` (the command could not check something) and `ok`. On this page, the *target* is the kubelet that you want to swap to.")
	para("", "The exit status is 3 if a finding is at or above the level that `--fail-on` names (default `STOP`). Otherwise it is 1 if the command could not check everything, and 0 if it could. It is 2 if the command line is wrong.")
	b.WriteString("| code | level | meaning | printed by |\n|---|---|---|---|\n")
	for _, c := range Codes() {
		level := []string{"`" + string(c.Level) + "`"}
		for _, l := range c.Also {
			level = append(level, "`"+string(l)+"`")
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |\n", c.Code, strings.ToLower(c.Code), strings.Join(level, " or "), c.Title, strings.Join(c.By, ", "))
	}
	for _, c := range Codes() {
		fmt.Fprintf(&b, "\n## %s\n\n", c.Code)
		para("", "**"+strings.ToUpper(c.Title[:1])+c.Title[1:]+".**")
		for _, a := range c.About {
			para("", a)
		}
		s := strings.TrimRight(b.String(), "\n") + "\n"
		b.Reset()
		b.WriteString(s)
	}
	return b.String()
}

// wrapAny wraps Markdown at spaces.
func wrapAny(text string, width int) []string {
	var out []string
	now := ""
	for word := range strings.FieldsSeq(text) {
		if now != "" && len(now)+1+len(word) > width {
			out, now = append(out, now), ""
		}
		if now != "" {
			now += " "
		}
		now += word
	}
	return append(out, now)
}
