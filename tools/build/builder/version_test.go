// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestPost(t *testing.T) {
	const release = "v1.9.11+holdfast.2"
	for _, tc := range []struct {
		rev  rev
		want string
	}{
		{rev{commit: commit, state: "clean", tags: []string{"x", release}}, ""},
		{rev{commit: commit, state: "archive", tags: []string{release}}, ""},
		{rev{commit: commit, state: "clean", tags: []string{"v1.9.11+holdfast.1", "v1.2.0+holdfast.2"}}, ".post.g0123456789ab"},
		{rev{commit: commit, state: "archive"}, ".post.g0123456789ab"},
		{rev{commit: commit, state: "dirty", tags: []string{release}}, ".post.g0123456789ab.dirty"},
		{rev{state: "archive"}, ".post.unknown"},
	} {
		if got := tc.rev.post(release); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.rev, got, tc.want)
		}
	}
}

// TestPostIsSorted: dpkg takes what is no release for newer than the release before it, and for
// older than the release after it.
func TestPostIsSorted(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not on this machine")
	}
	const release, next = "v1.9.11+holdfast.2", "v1.9.11+holdfast.3"
	less := func(a, b string) {
		t.Helper()
		a, b = strings.TrimPrefix(a, "v"), strings.TrimPrefix(b, "v")
		if err := exec.Command("dpkg", "--compare-versions", a, "lt", b).Run(); err != nil {
			t.Errorf("%s lt %s: %v", a, b, err)
		}
	}
	less("v1.9.11+holdfast.9", "v1.9.11+holdfast.10")
	for _, r := range []rev{
		{commit: commit, state: "clean"}, {commit: commit, state: "dirty"}, {state: "archive"},
		{commit: "abcdef" + commit[6:], state: "clean"}, {commit: strings.Repeat("9", 40), state: "clean"},
	} {
		if r.post(release) == "" {
			t.Errorf("%+v is the release", r)
		}
		less(release, release+r.post(release))
		less(release+r.post(release), next)
	}
}

func TestArchived(t *testing.T) {
	root := t.TempDir()
	if r, err := archived(root); err != nil || r.commit != "" || r.state != "archive" {
		t.Errorf("without the file: %+v, %v", r, err)
	}
	if err := os.Mkdir(filepath.Join(root, "hack"), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"$Format:%H %D$\n": " ",
		commit + "\n":      commit + " ",
		commit + " \n":     commit + " ",
		commit + " HEAD -> main, tag: v1, tag: v1.9.11+holdfast.2, origin/main\n": commit + " v1,v1.9.11+holdfast.2",
		"":                   "error",
		commit[:12]:          "error",
		"v1.9.11+holdfast.2": "error",
	} {
		if err := os.WriteFile(filepath.Join(root, "hack", "archive-commit"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := archived(root)
		got := r.commit + " " + strings.Join(r.tags, ",")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %q (%v), want %q", text, got, err, want)
		}
	}
}
