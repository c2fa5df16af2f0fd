// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commit is one of the history: its subject and the files that it changes.
type commit struct {
	hash, subject string
	files         []string
}

// TestCommits: subjects are short and say where something was changed, and no commit only records
// what a run answered.
func TestCommits(t *testing.T) {
	commits := parseCommits(checkout(t).since(t, "commits_test.go", "--name-only", "--format=%x00%h %s"))
	if len(commits) == 0 {
		t.Fatal("git names no commits")
	}
	report(t, commitFaults(commits))
}

// git is what git answers for the checkout. Outside of one the test is skipped.
func (r *repo) git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).CombinedOutput()
	if err != nil {
		t.Skipf("outside of a git checkout nothing is known of its commits: %s", out)
	}
	return string(out)
}

// since is git log of the commits since a file of this folder is there, its own among them. In a
// shallow clone these are the commits from its first one on.
func (r *repo) since(t *testing.T, file string, args ...string) string {
	t.Helper()
	first := strings.Fields(r.git(t, "log", "--diff-filter=A", "--format=%H", "--", "tools/verify/rules/"+file))
	if len(first) == 0 {
		return ""
	}
	from := first[len(first)-1]
	log := append([]string{"log", "--no-merges"}, args...)
	return r.git(t, slices.Insert(slices.Clone(log), 2, "-1", from)...) + r.git(t, slices.Insert(log, 2, "--ancestry-path", from+"..HEAD")...)
}

// parseCommits reads git log: for each commit a zero byte, hash and subject, and a line for each file.
func parseCommits(log string) []commit {
	var out []commit
	for _, text := range strings.Split(log, "\x00")[1:] {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		c := commit{}
		c.hash, c.subject, _ = strings.Cut(lines[0], " ")
		for _, l := range lines[1:] {
			if l != "" {
				c.files = append(c.files, l)
			}
		}
		out = append(out, c)
	}
	return out
}

var subjectRE = regexp.MustCompile(`^[A-Za-z0-9][^:]{0,30}: \S.*([^.]|\.\.\.)$`)

// records are the record of what the labs answered, and what is made of it alone.
var records = []string{"tools/labs/outcomes.json", "README.md", "docs/evidence/track-record.md", "docs/pictures/before-after.svg", "docs/design/proof.md", "docs/security.md"}

func commitFaults(commits []commit) []string {
	var bad []string
	for _, c := range commits {
		if n := len([]rune(c.subject)); n > 72 {
			bad = append(bad, fmt.Sprintf("commit %s: the subject has %d characters, 72 is the limit: %s", c.hash, n, c.subject))
		}
		if !subjectRE.MatchString(c.subject) {
			bad = append(bad, fmt.Sprintf("commit %s: the subject is no \"area: what it does\": %s", c.hash, c.subject))
		}
		if slices.Contains(c.files, records[0]) && !slices.ContainsFunc(c.files, func(f string) bool { return !slices.Contains(records, f) }) {
			bad = append(bad, fmt.Sprintf("commit %s only records what labs answered: commit the record with what was changed", c.hash))
		}
	}
	return bad
}

func TestFindsCommitFaults(t *testing.T) {
	long := "area: " + strings.Repeat("x", 67)
	log := "\x001 rbd: look at watchers\n\na.go\ntools/labs/outcomes.json\n\x002 " + long + "\n\na.go\n\x003 Fix things\n\na.go\n\x004 rbd: a sentence.\n\n\x005 record: again\n\nREADME.md\ntools/labs/outcomes.json\n"
	found(t, commitFaults(parseCommits(log)), "commit 2: the subject has 73 characters", "commit 3: the subject is no", "commit 4: the subject is no", "commit 5 only records")
}
