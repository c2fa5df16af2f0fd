// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxTags bounds what a pattern may expand to.
const MaxTags = 50_000_000

// Expand writes a pattern out: {0..12} is each number, {00..12} with its zeros,
// {a,b} each word; anything else stands for itself. The last part varies
// fastest. "v1.{0..2}.{0..9}" is 30 tags. Each tag is there once: "{1..12}{1..31}" has 111
// in two ways.
func Expand(pattern string) ([]string, error) {
	var parts []part
	total := 1
	for rest := pattern; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			parts = append(parts, part{rest})
			break
		}
		if open > 0 {
			parts = append(parts, part{rest[:open]})
		}
		shut := strings.IndexByte(rest[open:], '}')
		if shut < 0 {
			return nil, fmt.Errorf("pattern %q: a { is not closed", pattern)
		}
		body := rest[open+1 : open+shut]
		rest = rest[open+shut+1:]
		from, to, isRange := strings.Cut(body, "..")
		if !isRange {
			parts = append(parts, unique(strings.Split(body, ",")))
		} else {
			lo, err1 := strconv.Atoi(from)
			hi, err2 := strconv.Atoi(to)
			if err1 != nil || err2 != nil || lo < 0 || hi < lo {
				return nil, fmt.Errorf("pattern %q: {%s} is not {from..to} with numbers that ascend", pattern, body)
			}
			if hi-lo >= MaxTags {
				return nil, fmt.Errorf("pattern %q: more than %d tags", pattern, MaxTags)
			}
			width := 0
			if len(from) > 1 && from[0] == '0' {
				width = len(from)
			}
			p := make(part, 0, hi-lo+1)
			for i := lo; i <= hi; i++ {
				p = append(p, fmt.Sprintf("%0*d", width, i))
			}
			parts = append(parts, p)
		}
		if total *= len(parts[len(parts)-1]); total > MaxTags {
			return nil, fmt.Errorf("pattern %q: more than %d tags", pattern, MaxTags)
		}
	}
	tags := []string{""}
	for _, p := range parts {
		next := make([]string, 0, len(tags)*len(p))
		for _, t := range tags {
			for _, s := range p {
				next = append(next, t+s)
			}
		}
		tags = next
	}
	if mayRepeat(parts) {
		tags = unique(tags)
	}
	return tags, nil
}

// part is what stands at one place of a pattern.
type part []string

// uneven says whether the words are of several lengths.
func (p part) uneven() bool {
	return slices.ContainsFunc(p, func(s string) bool { return len(s) != len(p[0]) })
}

// mayRepeat says whether two choices may give one tag: words of several lengths with nothing that
// stands for itself between them and the next choice. What stands for itself may be a part of a
// word, so that is asked only of numbers.
func mayRepeat(parts []part) bool {
	choices := 0
	for _, p := range parts {
		if len(p) > 1 {
			choices++
		}
	}
	for i, p := range parts {
		switch {
		case len(p) == 1 || !p.uneven() || choices == 1:
		case slices.ContainsFunc(p, func(s string) bool { return !isNumber(s) }):
			return true
		case i > 0 && !parts[i-1].separates() || i+1 < len(parts) && !parts[i+1].separates():
			return true
		}
	}
	return false
}

// separates says whether a part keeps the numbers at its sides from each other.
func (p part) separates() bool { return len(p) == 1 && !isNumber(p[0]) }

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// unique is each word once, in their order.
func unique(words []string) []string {
	seen := make(map[string]bool, len(words))
	var out []string
	for _, w := range words {
		if !seen[w] {
			seen[w] = true
			out = append(out, w)
		}
	}
	return out
}
