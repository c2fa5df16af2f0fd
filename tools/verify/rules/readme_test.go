// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
	"holdfast/tools/labkit"
	"holdfast/tools/labs"
	"holdfast/tools/record/outcomes"
	"holdfast/tools/record/proof"
	"holdfast/tools/record/trackrecord"
)

var update = flag.Bool("update", false, "rewrite the track record, README's count of it and the page of the proof matrix")

// TestRecordPages: the track record, README's count of it and the page of the proof matrix are what the fixes and the
// record of the last full run of the labs give. That the labs still answer so is shown by make test.
func TestRecordPages(t *testing.T) {
	r := checkout(t)
	table, all, record := r.labs(t)
	want, err := trackrecord.Update(string(r.files[trackrecord.Page]), table, record, all)
	if err == nil {
		want, err = trackrecord.Shown(want, table, record, all)
	}
	if err != nil {
		t.Fatal(err)
	}
	front, err := trackrecord.Shown(string(r.files[trackrecord.FrontPage]), table, record, all)
	if err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{trackrecord.Page: want, trackrecord.FrontPage: front, proof.MarkdownFile: proof.Markdown(proof.Rows(table, all), record)} {
		r.gives(t, page, want, fmt.Sprintf("is not what the fixes and %s give: run %s or, in tools/, go test ./verify/rules -run RecordPages -update",
			outcomes.File, outcomes.Command))
	}
}

// labs reads the fixes, the labs that show them, and the record of what these answered.
func (r *repo) labs(t *testing.T) (*fixes.Table, labkit.Labs, *outcomes.Record) {
	t.Helper()
	table, err := fixes.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := labkit.NewLabs(labs.All(), table)
	if err != nil {
		t.Fatal(err)
	}
	record, err := outcomes.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	return table, all, record
}

// gives fails unless a page of the checkout is what its data give. With -update it writes the page.
func (r *repo) gives(t *testing.T, page, want, fault string) {
	t.Helper()
	switch had := string(r.files[page]); {
	case had == want:
	case *update:
		if err := os.WriteFile(filepath.Join(r.root, page), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s %s. Lines that differ:\n%s", page, fault, otherLines(had, want))
	}
}

// otherLines are the lines of a page that another one does not have, each with
// "-", and those that only the other one has, with "+".
func otherLines(page, other string) string {
	a, b := strings.Split(page, "\n"), strings.Split(other, "\n")
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// TestRecord: the record of outcomes has what the labs must answer. How old its runs are, and
// which are missing, the track record and the page of the proof matrix say. Those of labs that there are no
// more are dropped by the next run.
func TestRecord(t *testing.T) {
	_, all, record := checkout(t).labs(t)
	report(t, recordFaults(record, func(lab string, v base.Variant) string {
		if l := all.Find(lab); l != nil {
			return string(l.Expected(v))
		}
		return ""
	}))
}

// recordFaults compares a record with what labs must answer; "" where there is no such run.
func recordFaults(record *outcomes.Record, must func(lab string, v base.Variant) string) []string {
	var bad []string
	for _, o := range record.Outcomes {
		if want := must(o.Lab, o.Variant); want != "" && string(o.Verdict) != want {
			bad = append(bad, fmt.Sprintf("%s: lab %s (%s) answered %s, and must answer %s: run %s", outcomes.File, o.Lab, o.Variant, o.Verdict, want, outcomes.Command))
		}
	}
	return bad
}

func TestOtherLines(t *testing.T) {
	if got := otherLines("a\nb\nc\n", "a\nx\nc\ny\n"); got != "- b\n+ x\n+ y" {
		t.Errorf("%q", got)
	}
}

func TestFindsRecordFaults(t *testing.T) {
	record := &outcomes.Record{Outcomes: []outcome.Outcome{{Lab: "a", Variant: base.Ours, Verdict: "absent"}, {Lab: "a", Variant: base.Stock, Verdict: "absent"}, {Lab: "gone", Variant: base.Ours, Verdict: "x"}}}
	found(t, recordFaults(record, func(lab string, v base.Variant) string {
		if lab == "gone" {
			return ""
		}
		return map[base.Variant]string{base.Stock: "reproduced", base.Ours: "absent"}[v]
	}), "lab a (stock) answered absent, and must answer reproduced")
}
