// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Change is one file before and after a patch. New is nil for a deletion.
type Change struct {
	Path     string
	Old, New []byte
}

// Render writes the patch anew, in normal form, with the message it has and
// the given changes (in the order given).
func (p *Patch) Render(changes []Change) ([]byte, error) {
	out := bytes.Clone(normalHead(p.head))
	for _, c := range changes {
		d, err := diff(c)
		if err != nil {
			return nil, err
		}
		out = append(out, d...)
	}
	return out, nil
}

var fromRE = regexp.MustCompile(`(?s)^From [0-9a-f]{40} [^\n]*\n(From: [^\n]*\n)`)

// normalHead replaces the commit and the author, and drops the diffstat that
// git format-patch puts behind "---".
func normalHead(head []byte) []byte {
	h := fromRE.ReplaceAllString(string(head), zeroHash+authorLine)
	if i := strings.Index(h, "\n---\n"); i >= 0 {
		h = h[:i] + "\n---\n"
	}
	return []byte(h)
}

// diff is git's own, so that the result is what git am and a reviewer expect,
// with one line of context and no function names behind the second @@.
func diff(c Change) ([]byte, error) {
	if bytes.Equal(c.Old, c.New) && (c.New != nil) == (c.Old != nil) {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "holdfast-diff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for side, content := range map[string][]byte{"a": c.Old, "b": c.New} {
		f := filepath.Join(dir, side, c.Path)
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			return nil, err
		}
		if content == nil {
			continue
		}
		if err := os.WriteFile(f, content, 0o644); err != nil {
			return nil, err
		}
	}
	newSide := "b/" + c.Path
	if c.New == nil {
		newSide = "/dev/null"
	}
	cmd := exec.Command("git", "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-prefix",
		"--full-index", "-U1", "--diff-algorithm=myers", "--no-renames", "--", "a/"+c.Path, newSide)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ee, ok := err.(*exec.ExitError); err != nil && !(ok && ee.ExitCode() == 1) { // 1: they differ
		return nil, fmt.Errorf("git diff of %s: %v: %s", c.Path, err, stderr.Bytes())
	}
	return hunkHeadRE.ReplaceAll(out, []byte("$1")), nil
}

var hunkHeadRE = regexp.MustCompile(`(?m)^(@@ [^@]*@@).*$`)
