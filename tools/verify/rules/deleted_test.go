// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestDeletedTests: a test goes with a commit whose message names it, its file or its folder, and not
// by accident. The commits are those since this rule is there; what is changed and not committed has
// no message yet. Outside of git, and before the commit of a shallow clone, nothing is known of what
// was deleted.
func TestDeletedTests(t *testing.T) {
	r := checkout(t)
	tests := []string{"-U0", "--no-color", "--no-ext-diff", "-M", "--", "*_test.go"}
	work := r.git(t, append([]string{"diff", "HEAD"}, tests...)...)
	for _, p := range strings.Fields(r.git(t, "ls-files", "--others", "--exclude-standard", "--", "*_test.go")) {
		work += "\n+" + strings.ReplaceAll(string(r.files[p]), "\n", "\n+")
	}
	log := r.since(t, "deleted_test.go", append([]string{"-p", "--format=%x00commit %h%x01%B%x01"}, tests...)...)
	report(t, deletedFaults("\x00the working tree\x01\x01"+work+log))
}

// testLine is a test in a diff, fileLine the file that the lines after it were in.
var (
	testLine = regexp.MustCompile(`^([-+])func ((?:Test|Fuzz)\w*)\(`)
	fileLine = regexp.MustCompile(`^--- a/(.*)`)
)

// deletedFaults reads changes: of each a zero byte, its name, \x01, its message, \x01 and its diff.
// A test that a change moves is not deleted. The message names the test, its file or its folder.
func deletedFaults(log string) []string {
	var bad []string
	for _, text := range strings.Split(log, "\x00")[1:] {
		name, rest, _ := strings.Cut(text, "\x01")
		message, diff, _ := strings.Cut(rest, "\x01")
		gone, files := map[string]int{}, map[string]string{}
		var order []string
		file := ""
		for _, line := range strings.Split(diff, "\n") {
			if m := fileLine.FindStringSubmatch(line); m != nil {
				file = m[1]
			}
			m := testLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if m[1] == "+" {
				gone[m[2]]--
				continue
			}
			gone[m[2]]++
			order, files[m[2]] = append(order, m[2]), file
		}
		for _, test := range order {
			named := regexp.MustCompile(`\b(` + test + `|` + regexp.QuoteMeta(path.Base(files[test])) + `|` + regexp.QuoteMeta(path.Dir(files[test])) + `)\b`)
			if gone[test] > 0 && !named.MatchString(message) {
				bad = append(bad, fmt.Sprintf("%s deletes the test %s of %s and does not say so: put it back, or name it, its file or its folder in the message of the commit", name, test, files[test]))
				gone[test] = 0
			}
		}
	}
	return bad
}

func TestFindsDeletedFaults(t *testing.T) {
	diff := "--- a/x/a_test.go\n+++ b/x/a_test.go\n-func TestOne(t *testing.T) {\n-func TestMoved(t *testing.T) {\n+func TestMoved(t *testing.B) {\n-func helper() {\n"
	for _, says := range []string{"TestOne is in TestTwo now.", "Drop x/a_test.go.", "git rm -r tools/labs/x"} {
		found(t, deletedFaults("\x00commit 1\x01a: b\n\n"+says+"\x01"+strings.ReplaceAll(diff, "/x/", "/tools/labs/x/")))
	}
	found(t, deletedFaults("\x00commit 1\x01a: b\n\nTestOneMore is gone.\x01"+diff), "commit 1 deletes the test TestOne of x/a_test.go ")
	found(t, deletedFaults("\x00the working tree\x01\x01--- a/a_test.go\n-func TestSame(t *testing.T) {\n-func TestSame(t *testing.T) {\n+func TestSame(t *testing.T) {\n\x00commit 2\x01x\x01--- a/y/b_test.go\n-func FuzzIt(f *testing.F) {\n"),
		"the working tree deletes the test TestSame ", "commit 2 deletes the test FuzzIt of y/b_test.go ")
}
