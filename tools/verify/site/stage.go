// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package site makes a website of the repository's pages: it copies them into a folder that mkdocs
// reads, and checks what mkdocs has made of them.
package site

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
)

// linkRE is a link, or a picture, of a page; its target without the title.
var linkRE = regexp.MustCompile(`\]\(([^)\s#]+)`)

// pages are the files of the repository that are pages or pictures.
func pages(root string) ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md", "*.svg").Output()
	if err != nil {
		return nil, exit.Preconditionf("list the pages of %s: %v", root, err)
	}
	return slices.Compact(slices.Sorted(strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00"))), nil
}

// Stage copies the pages, and the files that they link, from root into the empty folder dest, and
// returns the pages.
func Stage(root, dest string) ([]string, error) {
	all, err := pages(root)
	if err != nil {
		return nil, err
	}
	todo := map[string]bool{}
	var read []string
	for _, p := range all {
		content, err := os.ReadFile(filepath.Join(root, p))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return nil, err
		}
		text := string(content)
		if strings.HasSuffix(p, ".md") {
			read = append(read, p)
			text = linkRE.ReplaceAllStringFunc(text, func(link string) string {
				target := strings.TrimPrefix(link, "](")
				if strings.Contains(target, ":") {
					return link
				}
				file := path.Join(path.Dir(p), target)
				info, err := os.Stat(filepath.Join(root, file))
				switch {
				case err != nil: // the check of the result says so
				case info.IsDir():
					return "](" + strings.TrimSuffix(target, "/") + "/README.md"
				default:
					todo[file] = true
				}
				return link
			})
			text = forPython(text)
		}
		if err := write(dest, p, text); err != nil {
			return nil, err
		}
		delete(todo, p)
	}
	for _, p := range slices.Sorted(maps.Keys(todo)) {
		if strings.HasSuffix(p, ".md") || strings.HasSuffix(p, ".svg") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			return nil, err
		}
		if err := write(dest, p, string(content)); err != nil {
			return nil, err
		}
	}
	return read, write(dest, cssFile, css)
}

func write(dest, name, content string) error {
	file := filepath.Join(dest, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644)
}

var itemRE = regexp.MustCompile(`^([*+-]|[0-9]+\.) +`)

// forPython writes Markdown as Python-Markdown wants it, which mkdocs uses: what belongs to an item
// of a list is four columns further in, and a list or table that follows text has an empty line
// before it.
func forPython(text string) string {
	var out []string
	var items []int // the columns at which the text of the open items begins
	fence, before := "", ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		indent := len(line) - len(trimmed)
		if trimmed == "" {
			out, before = append(out, ""), ""
			continue
		}
		if fence == "" {
			for len(items) > 0 && indent < items[len(items)-1] {
				items = items[:len(items)-1]
			}
		}
		in := 0
		if len(items) > 0 {
			in = items[len(items)-1]
		}
		margin := strings.Repeat(" ", 4*len(items)+max(0, indent-in))
		moved := margin + trimmed
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
		case strings.HasPrefix(trimmed, "```"):
			fence = "```"
			word, _, _ := strings.Cut(trimmed, " ") // marks of the labs behind the language
			moved = margin + word
		default:
			if m := itemRE.FindString(trimmed); m != "" && indent-in < 4 {
				if before == "text" {
					out = append(out, "")
				}
				items = append(items, indent+len(m))
				before = "item"
			} else if strings.HasPrefix(trimmed, "|") {
				if before != "table" && before != "" {
					out = append(out, "")
				}
				before = "table"
			} else if before != "item" || len(items) == 0 {
				before = "text"
			}
		}
		out = append(out, moved)
	}
	return strings.Join(out, "\n")
}

// sections are the parts of the navigation, with patterns of the pages in them.
var sections = []struct {
	title    string
	patterns []string
}{
	{"Operators", []string{"docs/user/*.md"}},
	{"Fixes", []string{"patches/README.md", "patches/*/README.md", "patches/*/v*/README.md"}},
	{"Evidence", []string{"docs/evidence/*.md", "docs/security.md", "docs/design/proof.md", "docs/design/differences.md", "docs/design/conformance.md"}},
	{"Design", []string{"docs/CONTRIBUTING.md", "docs/design/*.md", "docs/decisions/*.md"}},
	{"Labs", []string{"tools/labs/*/README.md", "tools/labs/checks/*/README.md"}},
}

// Config is mkdocs' configuration for pages in the folder staged, which writes to the folder html.
func Config(pages []string, staged, html string) string {
	var b strings.Builder
	fmt.Fprintf(&b, head, staged, html)
	seen := map[string]bool{}
	for _, s := range sections {
		fmt.Fprintf(&b, "- %s:\n", s.title)
		for _, pattern := range s.patterns {
			for _, p := range pages {
				if ok, err := path.Match(pattern, p); err == nil && ok && !seen[p] {
					seen[p] = true
					fmt.Fprintf(&b, "  - %s\n", p)
				}
			}
		}
	}
	return b.String()
}

// css gives links and the output of commands a contrast of 4.5 or more: the theme's teal has 3.5 in
// the dark mode and 3.7 in the light one, and its grey of output 4.3.
const cssFile, css = "site.css", `[data-md-color-scheme="slate"] { --md-typeset-a-color: #4db6ac; }
[data-md-color-scheme="default"] { --md-typeset-a-color: #00695c; --md-code-hl-generic-color: #36464e; }
`

// head is all but the pages. Nothing is loaded from elsewhere: font is off.
const head = `site_name: Holdfast
site_description: Drop-in binaries of old Kubernetes releases, with fixes
docs_dir: %s
site_dir: %s
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.tabs, navigation.top, search.highlight]
  palette:
  - media: "(prefers-color-scheme: light)"
    scheme: default
    primary: teal
    toggle: {icon: material/weather-night, name: dark}
  - media: "(prefers-color-scheme: dark)"
    scheme: slate
    primary: teal
    toggle: {icon: material/weather-sunny, name: light}
extra_css: [site.css]
extra:
  generator: false
plugins:
- search
markdown_extensions:
- tables
- pymdownx.superfences
- pymdownx.highlight
- toc:
    permalink: true
    slugify: !!python/name:pymdownx.slugs.gfm
nav:
- Holdfast: README.md
- All pages: docs/README.md
`
