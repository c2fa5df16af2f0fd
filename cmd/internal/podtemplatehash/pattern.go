// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxTags bounds what a pattern may expand to.
const MaxTags = 50_000_000

// Expand writes a pattern out: {0..12} is each number, {00..12} with its zeros,
// {a,b} each word; anything else stands for itself. The last part varies
// fastest. "v1.{0..2}.{0..9}" is 30 tags.
func Expand(pattern string) ([]string, error) {
	type part []string
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
			parts = append(parts, strings.Split(body, ","))
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
	return tags, nil
}
