// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"os"
	"path/filepath"
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
	gateRE     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	slugRE     = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9.]+)*$`)
	bugRE      = regexp.MustCompile(`^[a-z0-9.-]+/[a-z0-9.-]+#\d+$`)
	versionRE  = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)
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
	{"Bug", eachOr("none", bugRE, "each is owner/repository#number, or it is none")},
	{"Feature-Gate", eachOr("none", gateRE, "each is a gate's CamelCase name, or it is none")},
	{"Lab", eachOr("none", slugRE, "each is a room below tools/labs/, or it is none")},
	{"Applies-To", eachOr("", versionRE, "each is a base, e.g. v1.9.11")},
	{"Remove-When", func(string) string { return "" }},
}

// eachOr accepts a comma-separated list whose every item matches re, or the
// single word none where that is not empty.
func eachOr(none string, re *regexp.Regexp, text string) func(string) string {
	return func(v string) string {
		if none != "" && v == none {
			return ""
		}
		for _, item := range items(v) {
			if !re.MatchString(item) {
				return text
			}
		}
		return ""
	}
}

// items are the parts of a comma-separated list.
func items(list string) []string {
	var out []string
	for _, item := range strings.Split(list, ",") {
		out = append(out, strings.TrimSpace(item))
	}
	return out
}

// Check returns what is wrong with the patch's name, trailers and normal form,
// a sentence each; empty when all is well.
func (p *Patch) Check() []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, p.File+": "+fmt.Sprintf(format, args...)) }

	if p.Slug() == "" {
		say("the name is not NNNN-slug.patch")
	}
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
		if text == "" || !slugRE.MatchString(area) {
			say("the subject is %q: it wants a slug, a colon and what the patch does", p.Title)
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

// CheckDir checks each patch of the series in dir and that the series lists
// all patch files there are.
func CheckDir(root, dir string) ([]string, error) {
	patches, err := LoadSeries(root, dir)
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	var bad []string
	last := ""
	for _, p := range patches {
		bad = append(bad, p.Check()...)
		if filepath.Dir(p.File) != filepath.Clean(dir) {
			continue // borrowed from another base's series, checked there
		}
		listed[p.Name] = true
		number, _, _ := strings.Cut(p.Name, "-")
		switch before, _, _ := strings.Cut(last, "-"); {
		case p.Name < last:
			bad = append(bad, fmt.Sprintf("%s/series: %s stands behind %s: numbers rise", dir, p.Name, last))
		case number == before:
			bad = append(bad, fmt.Sprintf("%s/series: %s and %s have the same number %s", dir, last, p.Name, number))
		}
		last = p.Name
	}
	files, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Name() != "series" && !listed[f.Name()] {
			bad = append(bad, fmt.Sprintf("%s/%s is not in %s/series", dir, f.Name(), dir))
		}
	}
	return bad, nil
}
