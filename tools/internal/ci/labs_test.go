// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package ci

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/internal/exit"
)

// TestLabs runs a program in the place of lab, which writes what it is given.
func TestLabs(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"_output/tools", "_output/lab"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(lab, variant, expected, verdict string) string {
		return fmt.Sprintf(`{"lab": %q, "variant": %q, "expected": %q, "verdict": %q}`, lab, variant, expected, verdict)
	}
	stock, ours := answer("a", "stock", "reproduced", "reproduced"), answer("a", "ours", "absent", "absent")
	for name, tc := range map[string]struct {
		answers        []string
		all            bool
		status         int
		passed, failed int
		want           string // in the error; "" for none
	}{
		"right":               {[]string{stock, ours}, false, 0, 2, 0, ""},
		"all":                 {[]string{stock, ours}, true, 0, 2, 0, ""},
		"wrong":               {[]string{stock, answer("a", "ours", "absent", "reproduced")}, false, 1, 1, 1, "did not answer as expected: a (ours)"},
		"wrong and status 0":  {[]string{stock, answer("a", "ours", "absent", "reproduced")}, false, 0, 1, 1, "did not answer as expected: a (ours)"},
		"no verdict":          {[]string{stock, `{"lab": "a", "variant": "ours"}`}, false, 0, 1, 1, "a (ours)"},
		"a lab could not run": {[]string{stock, ours}, false, 1, 2, 0, "lab suite: exit status 1"},
		"nothing ran":         {[]string{}, false, 0, 0, 0, "lab suite ran no lab"},
		"no results":          {nil, true, 2, 0, 0, "lab all wrote no results"},
	} {
		program := fmt.Sprintf("#!/bin/sh\n[ \"$1 $2\" = \"%s --results\" ] || exit 9\n", map[bool]string{false: "suite", true: "all"}[tc.all])
		if tc.answers != nil {
			program += fmt.Sprintf("echo '[%s]' > \"$3\"\n", strings.Join(tc.answers, ", "))
		}
		program += fmt.Sprintf("exit %d\n", tc.status)
		if err := os.WriteFile(filepath.Join(root, "_output/tools/lab"), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		n, err := labs(root, tc.all)
		if n.Passed != tc.passed || n.Failed != tc.failed || (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || exit.Code(err) != exit.Failed) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// TestNotMapped: nothing is run with binaries that are not the checkout's.
func TestNotMapped(t *testing.T) {
	t.Setenv("HOLDFAST_BIN_MAP", "")
	if err := NotMapped(); err != nil {
		t.Error(err)
	}
	t.Setenv("HOLDFAST_BIN_MAP", "v1.9.11/ours=/elsewhere")
	if err := NotMapped(); exit.Code(err) != 1 || !strings.Contains(err.Error(), "HOLDFAST_BIN_MAP") {
		t.Errorf("mapped: %v", err)
	}
	// Not even the lab program is looked for.
	if _, err := labs(t.TempDir(), true); err == nil || !strings.Contains(err.Error(), "HOLDFAST_BIN_MAP") {
		t.Errorf("mapped: %v", err)
	}
}

// TestSkippedTests: a test that was skipped counts as that, not as passed or failed.
func TestSkippedTests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "x_test.go": "package x\n\nimport \"testing\"\n\n" +
		"func TestA(t *testing.T) { t.Skip(\"no ip\") }\n\nfunc TestB(t *testing.T) {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n, err := goTest(nil, dir, "./...")
	if n.Passed != 1 || n.Skipped != 1 || n.Failed != 0 || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
}
