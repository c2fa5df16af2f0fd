// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// source is what is released: a commit of this checkout, and the base that it is built on.
type source struct {
	root    string // of the checkout
	base    baseFile
	version string // "v1.9.11+holdfast.3"
	commit  string
	// date is that of the release in docs/user/changes.md, or of a snapshot's commit. All times
	// in all files are this one.
	date     time.Time
	snapshot bool
	notes    string // the section of changes.md
}

// baseFile is what is needed of bases/NAME/base.json.
type baseFile struct {
	Name    string `json:"base"`
	Module  string `json:"module"`
	Version string `json:"version"`
	Sum     string `json:"sum"`
	Release string `json:"release"`
	Default bool   `json:"default"`
}

// number is N of a release +holdfast.N; what names a commit behind it is none.
var number = regexp.MustCompile(`^v[0-9.]+(\+holdfast\.[0-9]+)$`)

// heading is that of a release in changes.md: "## +holdfast.2, 2026-11-21".
func heading(n string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(n) + `, ([0-9]{4}-[0-9]{2}-[0-9]{2})$`)
}

// readSource finds out what the checkout in the current folder is, and refuses what is no release.
func readSource(o options) (*source, error) {
	root, err := output("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, failf("no git checkout here: a release is one of a commit (%v)", err)
	}
	s := &source{root: root, snapshot: o.snapshot}
	if s.base, err = readBase(root, o.base); err != nil {
		return nil, err
	}
	if s.version, err = output(root, filepath.Join(root, "_output/tools/holdfast"), "--base", s.base.Name, "version"); err != nil {
		return nil, failf("%v: run make tool first", err)
	}
	if s.commit, err = output(root, "git", "rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	changes, err := os.ReadFile(filepath.Join(root, "docs/user/changes.md"))
	if err != nil {
		return nil, err
	}
	if s.snapshot {
		at, err := output(root, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return nil, err
		}
		var seconds int64
		if _, err := fmt.Sscan(at, &seconds); err != nil {
			return nil, err
		}
		s.date = time.Unix(seconds, 0).UTC()
		s.notes = section(string(changes), "## Unreleased")
		return s, nil
	}
	dirty, err := output(root, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	return s, s.release(dirty, string(changes))
}

// release refuses a version that is not that of a release's tag.
func (s *source) release(dirty, changes string) error {
	if dirty != "" {
		first, _, _ := strings.Cut(dirty, "\n")
		return failf("the checkout has changes that are not committed (%s): commit them or take them away", strings.TrimSpace(first))
	}
	m := number.FindStringSubmatch(s.version)
	if m == nil {
		return failf("this commit calls itself %s, no release: raise \"release\" in bases/%s/base.json, commit, and tag that commit with it; --snapshot builds this one for trials", s.version, s.base.Name)
	}
	h := heading(m[1]).FindStringSubmatch(changes)
	if h == nil {
		return failf("docs/user/changes.md has no heading \"## %s, YYYY-MM-DD\": date the release there", m[1])
	}
	var err error
	if s.date, err = time.Parse("2006-01-02", h[1]); err != nil {
		return failf("docs/user/changes.md: the date of %s: %v", m[1], err)
	}
	s.notes = section(changes, h[0])
	return nil
}

// section is what stands below a heading, up to the next one of its level.
func section(page, heading string) string {
	_, rest, _ := strings.Cut(page, heading+"\n")
	text, _, _ := strings.Cut(rest, "\n## ")
	return strings.TrimSpace(text)
}

func readBase(root, name string) (baseFile, error) {
	files, err := filepath.Glob(filepath.Join(root, "bases/*/base.json"))
	if err != nil {
		return baseFile{}, err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return baseFile{}, err
		}
		var b baseFile
		if err := json.Unmarshal(raw, &b); err != nil {
			return b, fmt.Errorf("%s: %w", file, err)
		}
		if name == "" && b.Default || name == b.Name && name != "" {
			if b.Release == "" {
				return b, usagef("--base %s: nothing of Holdfast is built on it", b.Name)
			}
			return b, nil
		}
	}
	return baseFile{}, usagef("--base %q: there is no bases/%s/base.json", name, name)
}

// plain is the version as packages have it, without the v.
func (s *source) plain() string { return strings.TrimPrefix(s.version, "v") }

// output is what a command prints, without the last newline.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}
