// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/outcomes"
	"holdfast/tools/internal/trackrecord"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/run"
)

// checkoutOf copies what the command reads of the checkout into a new folder,
// with an empty track record.
func checkoutOf(t *testing.T) string {
	t.Helper()
	from, err := base.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	names, err := filepath.Glob(filepath.Join(from, "bases", "*", "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(names, filepath.Join(from, "go.mod"), filepath.Join(from, "slugs.json")) {
		rel, err := filepath.Rel(from, f)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, rel), string(content))
	}
	write(t, filepath.Join(to, trackrecord.Page), "# x\n\n"+trackrecord.Head+"| old |\n\nafter\n")
	return to
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRecord(t *testing.T) {
	const lab = "node-upgrade"
	root := checkoutOf(t)
	last := func(ours labkit.Verdict) {
		t.Helper()
		l, err := labkit.Find(lab)
		if err != nil {
			t.Fatal(err)
		}
		var outs []run.Outcome
		for _, v := range append(l.Runs(), "ours -container-hash-compat") {
			o := run.Outcome{Lab: lab, Variant: v, Profile: labkit.Short, Seed: 3, Commit: "c", Expected: l.Expected(v), Verdict: l.Expected(v)}
			if v == labkit.Ours {
				o.Verdict, o.Numbers = ours, []journal.Number{{Name: "containers recreated", Value: 0}}
			}
			outs = append(outs, o)
		}
		if err := run.WriteOutcomes(run.OutcomesFile(root, lab, labkit.Short), outs); err != nil {
			t.Fatal(err)
		}
	}
	lab1 := func(want int, args ...string) {
		t.Helper()
		if got := Main(append([]string{"outcomes", "--root", root}, args...)); got != want {
			t.Errorf("lab outcomes %q: exit status %d, want %d", args, got, want)
		}
	}

	lab1(1, "--write", lab) // it has not been run
	last(labkit.Reproduced)
	lab1(1, "--write", lab) // it answered otherwise
	if _, err := os.Stat(filepath.Join(root, outcomes.File)); !os.IsNotExist(err) {
		t.Errorf("a refused run left a record: %v", err)
	}
	last(labkit.Absent)
	lab1(1, "--check", lab) // it is not in the record
	lab1(0, "--write", lab)
	lab1(0, "--check", lab)
	lab1(1, "--check") // the others have not been run
	lab1(2, "--write", lab, "--profile", "medium")

	record, err := outcomes.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	r := record.Labs[lab]
	if r == nil || r.Seed != 3 || !strings.HasPrefix(r.Release, "v1.9.11+") || len(r.Numbers["ours"]) != 1 || r.Answers["ours"] != "absent" || r.Answers["stock"] != "reproduced" || r.Answers["ours -container-hash-compat"] != "" {
		t.Errorf("the record is %+v", r)
	}
	page, err := os.ReadFile(filepath.Join(root, trackrecord.Page))
	if err != nil || strings.Contains(string(page), "| old |") || !strings.Contains(string(page), "`make lab LAB=container-hash-compat`") || !strings.HasSuffix(string(page), "\n\nafter\n") {
		t.Errorf("%v, the page is\n%s", err, page)
	}
	last(labkit.Reproduced)
	lab1(1, "--check", lab)
}
