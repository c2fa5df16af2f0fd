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
	"holdfast/tools/internal/outcomes"
)

// TestLabs runs a program in the place of lab, which writes what it is given.
func TestLabs(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"_output/tools", "_output/lab"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	record := &outcomes.Record{Profile: "short", Labs: map[string]*outcomes.Run{"a": {Answers: map[string]string{"stock": "reproduced", "ours": "absent"}}}}
	if err := record.Save(root); err != nil {
		t.Fatal(err)
	}
	answer := func(lab, variant, expected, verdict string) string {
		return fmt.Sprintf(`{"lab": %q, "variant": %q, "expected": %q, "verdict": %q}`, lab, variant, expected, verdict)
	}
	stock, ours := answer("a", "stock", "reproduced", "reproduced"), answer("a", "ours", "absent", "absent")
	for name, tc := range map[string]struct {
		answers        []string
		leftOut        string
		status         int
		passed, failed int
		want           []string // in the error; nil for none
	}{
		"one is left out":     {[]string{ours}, `{"a": ["stock"]}`, 0, 1, 0, nil},
		"another is left out": {[]string{ours}, `{"b": ["stock"]}`, 0, 1, 0, []string{"lab a (stock) is in outcomes.json, and was not run"}},
		"as recorded":         {[]string{stock, ours}, "{}", 0, 1, 0, nil},
		"not as it must":      {[]string{stock, answer("a", "ours", "absent", "reproduced")}, "{}", 1, 0, 1, []string{"did not answer as expected: a"}},
		"not as recorded":     {[]string{answer("a", "stock", "absent", "absent"), ours}, "{}", 0, 1, 0, []string{"lab a (stock) answered absent, and reproduced in outcomes.json", "make outcomes"}},
		"not in the record":   {[]string{stock, ours, answer("b", "stock", "reproduced", "reproduced")}, "{}", 0, 2, 0, []string{"lab b (stock) answered reproduced, and is not in outcomes.json"}},
		"a lab could not run": {[]string{stock, ours}, "{}", 1, 1, 0, []string{"lab suite: exit status 1"}},
		"no results":          {nil, "{}", 2, 0, 0, []string{"lab suite wrote no results"}},
	} {
		program := "#!/bin/sh\n"
		if tc.answers != nil {
			program += fmt.Sprintf("echo '{\"leftOut\": %s, \"outcomes\": [%s]}' > \"$5\"\n", tc.leftOut, strings.Join(tc.answers, ", "))
		}
		program += fmt.Sprintf("exit %d\n", tc.status)
		if err := os.WriteFile(filepath.Join(root, "_output/tools/lab"), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		n, err := labs(root, false)
		if n.Passed != tc.passed || n.Failed != tc.failed || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
		for _, w := range tc.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v, want one with %q", name, err, w)
			}
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
