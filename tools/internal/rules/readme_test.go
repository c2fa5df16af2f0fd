// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/outcomes"
	"holdfast/tools/internal/proof"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/trackrecord"
	"holdfast/tools/labkit"
)

var update = flag.Bool("update", false, "rewrite README's track record and the pages of the proof matrix and of the sweeps")

// TestTrackRecord: README's table is what slugs.json, the record of the labs'
// last outcomes and that of the proof matrix give. That the labs still answer so is shown by make test.
func TestTrackRecord(t *testing.T) {
	r := checkout(t)
	table, err := slugs.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	record, err := outcomes.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	proved, err := proof.LoadRecord(r.root)
	if err != nil {
		t.Fatal(err)
	}
	page := string(r.files[trackrecord.Page])
	want, err := trackrecord.Update(page, table, record, proved.Without, trackrecord.Find)
	if err != nil {
		t.Fatal(err)
	}
	r.gives(t, trackrecord.Page, want, fmt.Sprintf("has a track record that is not what %s, %s and %s say: run labs and %s, or, in tools/, go test ./internal/rules -run TrackRecord -update",
		slugs.File, outcomes.File, proof.RecordFile, outcomes.Command))
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

// TestRecord: the record of outcomes has verdicts that labs must answer, of
// labs and variants that there are, on a release that there is.
func TestRecord(t *testing.T) {
	r := checkout(t)
	table, err := slugs.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	if err := labkit.UseTable(table); err != nil {
		t.Fatal(err)
	}
	record, err := outcomes.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	releases := map[string]bool{}
	for _, b := range bases(t, r.root) {
		releases[b.Release] = true
	}
	report(t, recordFaults(record, releases, func(lab string) *outcomes.Run {
		l, err := labkit.Find(lab)
		if err != nil {
			return nil
		}
		must := &outcomes.Run{Answers: map[string]string{}}
		for _, v := range l.Runs() {
			must.Answers[string(v)] = string(l.Expected(v))
		}
		for _, v := range l.LeftOut {
			must.LeftOut = append(must.LeftOut, string(v))
		}
		return must
	}))
}

// recordFaults compares a record with what labs must answer by variant, and with the
// variants that make test leaves out; nil for a lab that there is not.
func recordFaults(record *outcomes.Record, releases map[string]bool, must func(lab string) *outcomes.Run) []string {
	var bad []string
	for _, lab := range slices.Sorted(maps.Keys(record.Labs)) {
		run, want := record.Labs[lab], must(lab)
		switch {
		case want == nil:
			bad = append(bad, fmt.Sprintf("%s: there is no lab %s: remove it", outcomes.File, lab))
		case !slices.Equal(run.LeftOut, want.LeftOut):
			bad = append(bad, fmt.Sprintf("%s: make test leaves out %v of lab %s, and leftOut is %v: correct it", outcomes.File, want.LeftOut, lab, run.LeftOut))
		case !maps.Equal(run.Answers, want.Answers):
			bad = append(bad, fmt.Sprintf("%s: lab %s answered %v, and must answer %v: run make lab LAB=%s, then %s", outcomes.File, lab, run.Answers, want.Answers, lab, outcomes.Command))
		case !releases[run.Release] || run.Release == "":
			bad = append(bad, fmt.Sprintf("%s: lab %s was run on release %q, which no base has now: run the labs, then %s", outcomes.File, lab, run.Release, outcomes.Command))
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
	run := func(release, ours string) *outcomes.Run {
		return &outcomes.Run{Release: release, Answers: map[string]string{string(base.Stock): "reproduced", string(base.Ours): ours}}
	}
	must := func(lab string) *outcomes.Run {
		switch lab {
		case "gone":
			return nil
		case "less":
			left := run("", "absent")
			left.LeftOut = []string{"stock"}
			return left
		}
		return run("", "absent")
	}
	faults := func(lab string, r *outcomes.Run) []string {
		return recordFaults(&outcomes.Record{Labs: map[string]*outcomes.Run{lab: r}}, map[string]bool{"v1+x": true, "": true}, must)
	}
	found(t, faults("a", run("v1+x", "absent")))
	found(t, faults("gone", run("v1+x", "absent")), "there is no lab gone")
	found(t, faults("a", run("v1+x", "reproduced")), "must answer map[ours:absent stock:reproduced]")
	found(t, faults("a", run("v0+x", "absent")), `on release "v0+x"`)
	found(t, faults("a", run("", "absent")), `on release ""`)
	less := run("v1+x", "absent")
	delete(less.Answers, string(base.Ours))
	found(t, faults("a", less), "answered map[stock:reproduced]")
	found(t, faults("less", run("v1+x", "absent")), "make test leaves out [stock] of lab less")
}
