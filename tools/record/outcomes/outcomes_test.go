// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package outcomes

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/outcome"
)

func made(lab string, v base.Variant, verdict outcome.Verdict, date string) outcome.Outcome {
	return outcome.Outcome{Lab: lab, Variant: v, Verdict: verdict, Seed: 7, Commit: strings.Repeat("c", 40), Date: date}
}

func rootWith(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	file := filepath.Join(root, File)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if text != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRecord(t *testing.T) {
	root := rootWith(t, "")
	r, err := Load(root)
	if err != nil || len(r.Outcomes) != 0 || r.Oldest() != "" {
		t.Fatalf("without a file: %+v, %v", r, err)
	}
	stock := made("b", base.Stock, "reproduced", "2026-11-20")
	stock.Numbers = []outcome.Number{{Name: "gap", Value: 0.5, Unit: "s"}, {Name: "lost", Value: 3}}
	stock.Seconds, stock.Why = 3, "a node flapped"
	r.Put(stock)
	r.Put(made("b", base.Ours.Without("x"), "reproduced", "2026-11-22"))
	r.Put(made("a", base.Ours, "inconclusive", "2026-11-19"))
	r.Put(made("a", base.Ours, "absent", "2026-11-21")) // in the place of the one before
	r.Put(made("gone", base.Ours, "absent", "2025-01-01"))
	r.Keep(func(lab string, _ base.Variant) bool { return lab != "gone" })
	if err := r.Save(root); err != nil {
		t.Fatal(err)
	}
	back, err := Load(root)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("read back %+v, %v, wrote %+v", back, err, r)
	}
	if got, want := []string{back.Verdict("a", base.Ours), back.Verdict("b", base.Stock), back.Verdict("b", base.Ours), back.Without("b", "x"), back.Without("a", "x"), back.Oldest()},
		[]string{"absent", "reproduced", "", "reproduced", "", "2026-11-20"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	raw, err := os.ReadFile(filepath.Join(root, File))
	if lines := strings.Split(strings.TrimSpace(string(raw)), "\n"); err != nil || len(lines) != 5 || !strings.HasPrefix(lines[1], `  {"lab":"a"`) {
		t.Errorf("%v\n%s", err, raw)
	}
}

func TestLoadRefuses(t *testing.T) {
	row := `{"lab":"a","variant":"ours","verdict":"absent","seed":1,"commit":"c1","date":"2026-11-20"}`
	for text, want := range map[string]string{
		"[" + row + "," + row + "]":                                         `lab "a" (ours): is there twice`,
		"[" + strings.Replace(row, "c1", "c1-dirty", 1) + "]":               `commit is "c1-dirty"`,
		"[" + strings.Replace(row, `"c1"`, `""`, 1) + "]":                   "commit is",
		"[" + strings.Replace(row, "2026-11-20", "today", 1) + "]":          "date",
		"[" + strings.Replace(row, `"absent"`, `""`, 1) + "]":               "verdict must be there",
		"[" + strings.Replace(row, `"seed"`, `"key"`, 1) + "]":              "key",
		"[" + strings.Replace(row, `"date"`, `"seconds":7,"date"`, 1) + "]": "what changes from run to run",
		"{": "correct it, or remove it",
	} {
		if _, err := Load(rootWith(t, text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), File) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
