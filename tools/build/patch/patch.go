// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patch reads, checks, applies and rewrites the patch files of a
// base. patches/README.md is the policy that it enforces.
package patch

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"holdfast/tools/build/exit"
)

// Patch is one patch file in its parsed form.
type Patch struct {
	File     string // path as given to Load, for messages
	Name     string // file name, e.g. "0210.patch"
	Raw      []byte
	Title    string // subject without "[PATCH]"
	Trailers []Trailer
	Diffs    []*gitdiff.File
	// head is everything before the first "diff --git", message the part of it
	// between the mail header and "---".
	head    []byte
	message string
}

// Trailer is one "Key: value" line at the end of the message.
type Trailer struct{ Key, Value string }

// Trailer returns the value of the first trailer with key, or "".
func (p *Patch) Trailer(key string) string {
	for _, t := range p.Trailers {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// Touches lists the tree paths that the patch changes.
func (p *Patch) Touches() []string {
	var out []string
	for _, d := range p.Diffs {
		if d.IsDelete {
			out = append(out, d.OldName)
		} else {
			out = append(out, d.NewName)
		}
	}
	return out
}

var (
	// A closing paragraph whose every line is "Key: value" holds the trailers.
	trailerRE = regexp.MustCompile(`^([A-Z][A-Za-z]*(?:-[A-Z][A-Za-z]*)*): (\S.*)$`)
	indexRE   = regexp.MustCompile(`(?m)^index ([0-9a-f]+)\.\.([0-9a-f]+)( \d{6})?$`)
)

// Parse reads one patch. file is used in messages only.
func Parse(file string, raw []byte) (*Patch, error) {
	p := &Patch{File: file, Name: filepath.Base(file), Raw: raw}
	i := bytes.Index(raw, []byte("\ndiff --git "))
	if i < 0 {
		return nil, exit.Preconditionf("%s: no \"diff --git\" line: a patch is a mail with a git diff", file)
	}
	p.head = raw[:i+1]
	diffs, _, err := gitdiff.Parse(bytes.NewReader(raw))
	if err != nil {
		return nil, exit.Preconditionf("%s: %v", file, err)
	}
	p.Diffs = diffs

	header, message, ok := strings.Cut(string(p.head), "\n\n")
	if !ok {
		return nil, exit.Preconditionf("%s: no empty line between the mail header and the message", file)
	}
	for _, l := range strings.Split(header, "\n") {
		if s, ok := strings.CutPrefix(l, "Subject: [PATCH] "); ok {
			p.Title = s
		}
	}
	message, _, ok = strings.Cut(message, "\n---\n")
	if !ok {
		return nil, exit.Preconditionf("%s: no \"---\" line between the message and the diff", file)
	}
	p.message = message
	paragraphs := strings.Split(strings.TrimSpace(message), "\n\n")
	for _, l := range strings.Split(paragraphs[len(paragraphs)-1], "\n") {
		m := trailerRE.FindStringSubmatch(l)
		if m == nil {
			p.Trailers = nil
			break
		}
		p.Trailers = append(p.Trailers, Trailer{m[1], m[2]})
	}
	return p, nil
}

// Load reads the patches with these paths, relative to root.
func Load(root string, files []string) ([]*Patch, error) {
	var out []*Patch
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, exit.Preconditionf("%v", err)
		}
		p, err := Parse(file, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// Content looks a file of the tree up: nil, nil when there is none.
type Content func(path string) ([]byte, error)

// Apply lays the patch on the files that get returns and hands each result to
// put; nil content deletes the file. A hunk has to match at its own line: no
// fuzz and no offset, so that a patch that has drifted is seen.
func (p *Patch) Apply(get Content, put func(path string, content []byte) error) error {
	for _, d := range p.Diffs {
		old, err := get(d.OldName)
		if err != nil {
			return err
		}
		switch {
		case d.IsNew:
			return exit.Preconditionf("%s: %s is a new file: new files belong to the overlay, a patch changes upstream's", p.File, d.NewName)
		case d.IsRename || d.IsCopy || d.IsBinary:
			return exit.Preconditionf("%s: %s: renames, copies and binary changes are not supported; see patches/README.md", p.File, d.NewName)
		case d.NewMode != 0 && d.NewMode != d.OldMode:
			return exit.Preconditionf("%s: %s: changes of a file's mode are not supported", p.File, d.NewName)
		case old == nil:
			return exit.Preconditionf("%s: %s does not exist in the tree", p.File, d.OldName)
		}
		var out bytes.Buffer
		if err := gitdiff.Apply(&out, bytes.NewReader(old), d); err != nil {
			return exit.Preconditionf("%s: %s does not apply: %s", p.File, where(d, err), err)
		}
		if d.IsDelete {
			err = put(d.OldName, nil)
		} else {
			err = put(d.NewName, out.Bytes())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// where names file and line of the tree that a failed hunk wanted to change.
func where(d *gitdiff.File, err error) string {
	var ae *gitdiff.ApplyError
	if !errors.As(err, &ae) {
		return d.OldName
	}
	line := ae.Line
	if ae.Fragment > 0 && ae.Fragment <= len(d.TextFragments) && line == 0 {
		line = d.TextFragments[ae.Fragment-1].OldPosition
	}
	return fmt.Sprintf("%s:%d (hunk %d)", d.OldName, line, ae.Fragment)
}

// BlobHash is git's name for a file's content.
func BlobHash(content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return fmt.Sprintf("%x", h.Sum(nil))
}
