// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/tools/build/outcome"
	"holdfast/tools/labkit"
)

func TestOutcomesAreKept(t *testing.T) {
	root := t.TempDir()
	stock := labkit.Outcome{Lab: "a", Variant: labkit.Stock, Profile: string(labkit.Short), Seed: 7, Commit: strings.Repeat("c", 40) + "-dirty", Date: "2026-11-21", Seconds: 1.5,
		Expected: labkit.Reproduced, Verdict: labkit.Reproduced, Why: "2 | 3\nmore", Facts: []string{"f"}, Numbers: []outcome.Number{{Name: "lost", Value: 3}, {Name: "gap", Value: 0.5, Unit: "s"}}, Artefacts: "x"}
	ours := labkit.Outcome{Lab: "a", Variant: labkit.Ours, Profile: string(labkit.Short), Expected: labkit.Absent, Verdict: labkit.Inconclusive}
	again := ours
	again.Verdict = labkit.Absent
	for _, run := range [][]labkit.Outcome{{stock, ours}, {again}} {
		if err := keepOutcomes(root, "a", labkit.Short, run); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LastOutcomes(root, []*labkit.Lab{{Name: "none"}, {Name: "a"}}, labkit.Short)
	if err != nil || !reflect.DeepEqual(got, []labkit.Outcome{stock, again}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := LastOutcomes(root, []*labkit.Lab{{Name: "a"}}, labkit.Long); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	text := func(outcomes []labkit.Outcome, format string) string {
		var b bytes.Buffer
		if err := PrintOutcomes(&b, outcomes, format); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for format, want := range map[string]string{
		"text":     "a    stock    reproduced    ok     1.5 s  cccccccccccc-dirty  2 | 3\n",
		"markdown": "| a | stock | reproduced | reproduced | 2 \\| 3 | lost 3; gap 0.5 s | cccccccccccc-dirty | 1.5 s |\n",
	} {
		if s := text([]labkit.Outcome{stock, ours}, format); !strings.Contains(s, want) {
			t.Errorf("%s:\n%s", format, s)
		}
	}
	if s := text([]labkit.Outcome{ours}, "text"); !strings.Contains(s, "WRONG") {
		t.Error(s)
	}
	var back []labkit.Outcome
	if err := json.Unmarshal([]byte(text(got, "json")), &back); err != nil || len(back) != 2 && len(got) == 2 {
		t.Error(back, err)
	}
	if s := text(nil, "json"); s != "[]\n" {
		t.Errorf("%q", s)
	}
}

// TestAgain: only a lab that could not tell runs once more.

// TestCommitOf: a file that was never added makes a checkout dirty, a mapped binary is named.
func TestCommitOf(t *testing.T) {
	root := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	clean := commitOf(root, false)
	if clean == "" || strings.Contains(clean, "-") {
		t.Errorf("a clean checkout is %q", clean)
	}
	if got := commitOf(root, true); got != clean+"-mapped" {
		t.Errorf("mapped: %q", got)
	}
	if err := os.WriteFile(filepath.Join(root, "overlay.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := commitOf(root, false); got != clean+"-dirty" {
		t.Errorf("with a file that git does not know: %q", got)
	}
}
