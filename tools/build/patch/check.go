// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Normal form of a patch file (see patches/README.md).
const (
	zeroHash    = "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
	authorLine  = "From: Holdfast developers <developers@holdfast.invalid>\n"
	maxTitleLen = 72
)

var (
	dateRE     = regexp.MustCompile(`^Date: [A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} [+-]\d{4}$`)
	areaRE     = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9.]+)*$`)
	bugRE      = regexp.MustCompile(`^[a-z0-9.-]+/[a-z0-9.-]+#\d+$`)
	hunkTailRE = regexp.MustCompile(`(?m)^@@ [^@]*@@.+$`)
)

// required are the trailers that each patch carries, in this order, and what
// is wrong with a value ("" when it is right).
var required = []struct {
	key   string
	wrong func(value string) string
}{
	{"Upstream-Status", func(v string) string {
		word, reason, _ := strings.Cut(v, " ")
		switch {
		case !slices.Contains([]string{"Pending", "Submitted", "Backport", "Inappropriate"}, word):
			return "it is Pending, Submitted, Backport or Inappropriate [reason]"
		case word == "Inappropriate" && !(strings.HasPrefix(reason, "[") && strings.HasSuffix(reason, "]") && len(reason) > 2):
			return "Inappropriate wants its reason in brackets"
		}
		return ""
	}},
	{"Origin", func(string) string { return "" }},
	{"Bug", bugs},
	{"Remove-When", func(string) string { return "" }},
}

// bugs wants a comma-separated list of issues, or none.
func bugs(v string) string {
	if v == "none" {
		return ""
	}
	for _, b := range strings.Split(v, ",") {
		if !bugRE.MatchString(strings.TrimSpace(b)) {
			return "each is owner/repository#number, or it is none"
		}
	}
	return ""
}

// Check returns what is wrong with the patch's name, trailers and normal form,
// a sentence each; empty when all is well.
func (p *Patch) Check() []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, p.File+": "+fmt.Sprintf(format, args...)) }

	raw := string(p.Raw)
	if !strings.HasPrefix(raw, zeroHash+authorLine) {
		say("it does not begin with the normal form's two From lines; run make patches-normalise")
	}
	lines := strings.SplitN(raw, "\n", 5)
	if len(lines) < 5 || !dateRE.MatchString(lines[2]) {
		say("line 3 is not a mail's Date")
	}
	switch {
	case p.Title == "":
		say(`no "Subject: [PATCH] …" line`)
	case len(p.Title) > maxTitleLen:
		say("the subject is %d characters long, %d is the limit", len(p.Title), maxTitleLen)
	default:
		area, text, _ := strings.Cut(p.Title, ": ")
		if text == "" || !areaRE.MatchString(area) {
			say("the subject is %q: it wants a word, a colon and what the patch does", p.Title)
		}
	}
	if !strings.Contains(strings.TrimSpace(p.message), "\n\n") {
		say("the message has no text before the trailers")
	}
	if !strings.HasSuffix(string(p.head), "\n---\n") {
		say("something stands between \"---\" and the diff; run make patches-normalise")
	}
	if !strings.HasSuffix(raw, "\n") {
		say("it does not end with a newline")
	}
	if strings.Contains(raw, "\n-- \n") {
		say("it ends with a signature; run make patches-normalise")
	}
	if hunkTailRE.MatchString(raw) {
		say("a hunk header carries text of the function around it; run make patches-normalise")
	}
	for _, m := range indexRE.FindAllStringSubmatch(raw, -1) {
		if len(m[1]) != 40 || len(m[2]) != 40 {
			say("index line %s..%s is abbreviated; run make patches-normalise", m[1], m[2])
		}
	}
	for _, d := range p.Diffs {
		for i, f := range d.TextFragments {
			if f.LeadingContext > 1 || f.TrailingContext > 1 {
				say("%s hunk %d has more than one line of context; run make patches-normalise", d.NewName, i+1)
			}
		}
	}
	return append(bad, p.checkTrailers()...)
}

func (p *Patch) checkTrailers() []string {
	if len(p.Trailers) == 0 {
		return []string{p.File + ": the message's last paragraph is not made of trailers (Key: value)"}
	}
	var bad []string
	next := 0
	for _, t := range p.Trailers {
		i := slices.IndexFunc(required, func(r struct {
			key   string
			wrong func(string) string
		}) bool {
			return r.key == t.Key
		})
		switch {
		case i < 0:
			bad = append(bad, fmt.Sprintf("%s: trailer %q is not one of the policy's", p.File, t.Key))
			continue
		case i < next:
			bad = append(bad, fmt.Sprintf("%s: trailer %q is out of order or doubled", p.File, t.Key))
		}
		next = i + 1
		if text := required[i].wrong(t.Value); text != "" {
			bad = append(bad, fmt.Sprintf("%s: trailer %s: %q: %s", p.File, t.Key, t.Value, text))
		}
	}
	for _, r := range required {
		if p.Trailer(r.key) == "" {
			bad = append(bad, fmt.Sprintf("%s: trailer %s is missing", p.File, r.key))
		}
	}
	return bad
}
