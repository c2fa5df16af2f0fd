// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestDeletedTests: a test goes with a commit whose message names it, and not by accident. The
// commits are those since this rule is there; what is changed and not committed has no message yet.
// Outside of git, and before the commit of a shallow clone, nothing is known of what was deleted.
func TestDeletedTests(t *testing.T) {
	r := checkout(t)
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).CombinedOutput()
		if err != nil {
			t.Skipf("outside of a git checkout nothing is known of tests that were deleted: %s", out)
		}
		return string(out)
	}
	tests := []string{"-U0", "--no-color", "--no-ext-diff", "-M", "--", "*_test.go"}
	work := git(append([]string{"diff", "HEAD"}, tests...)...)
	for _, p := range strings.Fields(git("ls-files", "--others", "--exclude-standard", "--", "*_test.go")) {
		work += "\n+" + strings.ReplaceAll(string(r.files[p]), "\n", "\n+")
	}
	log := "\x00the working tree\x01\x01" + work
	first := strings.Fields(git("log", "--diff-filter=A", "--format=%H", "--", "tools/verify/rules/deleted_test.go"))
	if len(first) > 0 {
		since := first[len(first)-1]
		log += git(append([]string{"log", "--no-merges", "--ancestry-path", since + "..HEAD", "-p", "--format=%x00commit %h%x01%B%x01"}, tests...)...)
	}
	report(t, deletedFaults(log))
}

var testLine = regexp.MustCompile(`(?m)^([-+])func ((?:Test|Fuzz)\w*)\(`)

// deletedFaults reads changes: of each a zero byte, its name, \x01, its message, \x01 and its diff.
// A test that a change moves is not deleted.
func deletedFaults(log string) []string {
	var bad []string
	for _, text := range strings.Split(log, "\x00")[1:] {
		name, rest, _ := strings.Cut(text, "\x01")
		message, diff, _ := strings.Cut(rest, "\x01")
		gone := map[string]int{}
		var order []string
		for _, m := range testLine.FindAllStringSubmatch(diff, -1) {
			if m[1] == "+" {
				gone[m[2]]--
				continue
			}
			gone[m[2]]++
			order = append(order, m[2])
		}
		for _, test := range order {
			if gone[test] > 0 && !regexp.MustCompile(`\b`+test+`\b`).MatchString(message) {
				bad = append(bad, fmt.Sprintf("%s deletes the test %s and does not say so: put it back, or name it in the message of the commit", name, test))
				gone[test] = 0
			}
		}
	}
	return bad
}

func TestFindsDeletedFaults(t *testing.T) {
	diff := "--- a/a_test.go\n+++ b/a_test.go\n-func TestOne(t *testing.T) {\n-func TestMoved(t *testing.T) {\n+func TestMoved(t *testing.B) {\n-func helper() {\n"
	found(t, deletedFaults("\x00commit 1\x01a: b\n\nTestOne is in TestTwo now.\x01"+diff))
	found(t, deletedFaults("\x00commit 1\x01a: b\n\nTestOneMore is gone.\x01"+diff), "commit 1 deletes the test TestOne ")
	found(t, deletedFaults("\x00the working tree\x01\x01-func TestSame(t *testing.T) {\n-func TestSame(t *testing.T) {\n+func TestSame(t *testing.T) {\n\x00commit 2\x01x\x01-func FuzzIt(f *testing.F) {\n"),
		"the working tree deletes the test TestSame ", "commit 2 deletes the test FuzzIt ")
}
