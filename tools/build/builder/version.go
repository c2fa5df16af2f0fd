// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
)

// rev is the state of our sources. commit is "" where nothing says it.
type rev struct {
	commit, state, date string
	tags                []string
}

// post is what a version has behind that of the last release: nothing if the sources are those of
// the release's tag, else the commit. dpkg and rpm sort that between the release and the next one.
func (r rev) post(release string) string {
	switch {
	case r.commit == "":
		return ".post.unknown"
	case r.state == "dirty":
		return ".post.g" + r.commit[:12] + ".dirty"
	case slices.Contains(r.tags, release):
		return ""
	}
	return ".post.g" + r.commit[:12]
}

// archiveFile is the file into which git archive writes the commit and its refs (.gitattributes).
const archiveFile = "hack/archive-commit"

var archiveForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})(?: (.*))?$`)

// archived is revision for sources outside of a git checkout: what archiveFile says, which is the
// placeholder where the sources were copied from a checkout without its .git.
func archived(root string) (rev, error) {
	r := rev{state: "archive"}
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(archiveFile)))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return rev{}, err
	}
	line := strings.TrimSpace(string(raw))
	if strings.HasPrefix(line, "$Format:") {
		return r, nil
	}
	m := archiveForm.FindStringSubmatch(line)
	if m == nil {
		return rev{}, exit.Preconditionf("%s: %q is not a commit of 40 or 64 hexadecimal digits, with its refs behind it as git archive writes them", archiveFile, line)
	}
	r.commit = m[1]
	for _, ref := range strings.Split(m[2], ", ") {
		if tag, ok := strings.CutPrefix(ref, "tag: "); ok {
			r.tags = append(r.tags, tag)
		}
	}
	return r, nil
}
