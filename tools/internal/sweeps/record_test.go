// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
	"holdfast/tools/labkit/sweep"
)

// TestRecordedElsewhere: another checkout with the record repeats nothing, and plans new seeds
// from the components that the record has.
func TestRecordedElsewhere(t *testing.T) {
	r := newRig(t)
	r.o.Labs = []string{"alpha"}
	r.answer = func(_ string, v labkit.Variant, kills []sweep.Kill, _ uint64) *run.Swept {
		s := right(v)
		s.Outcome.Why, s.Outcome.Artefacts = r.o.Root+"/_output/x.log: so\nand so", "_output/lab/alpha"
		return s
	}
	r.run(t)
	kept, left := r.rows.Record()
	if len(kept) != 6 || len(left) != 0 {
		t.Fatal(len(kept), left)
	}
	var b bytes.Buffer
	if err := WriteRecord(&b, kept); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), r.o.Root) || strings.Contains(b.String(), "and so") || strings.Contains(b.String(), "_output/lab") {
		t.Errorf("the record has what only this checkout has:\n%s", &b)
	}
	other := newRig(t)
	other.o.Labs = r.o.Labs
	if err := os.WriteFile(filepath.Join(other.o.Root, RecordFile), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if other.rows, err = Load(other.o.Root); err != nil {
		t.Fatal(err)
	}
	if other.run(t); len(other.ran) != 0 {
		t.Errorf("repeated: %q", other.ran)
	}
	other.o.Seeds = 3
	if other.run(t); len(other.ran) != 2 || strings.Contains(strings.Join(other.ran, " "), "[]") {
		t.Errorf("one more seed: %q", other.ran)
	}
	// An own run goes before the recorded one; the record alone stays as it was.
	own := *kept[1]
	own.Verdict = labkit.Inconclusive
	if err := other.rows.Put(&own); err != nil {
		t.Fatal(err)
	}
	again, err := Load(other.o.Root)
	if err != nil || again.Find(own.ID).Verdict != labkit.Inconclusive || len(again.All()) != 8 {
		t.Errorf("%d rows, %v", len(again.All()), err)
	}
	if alone, err := LoadRecord(other.o.Root); err != nil || len(alone) != 6 || slices.ContainsFunc(alone, func(r *Row) bool { return r.Verdict == labkit.Inconclusive }) {
		t.Errorf("%d rows, %v", len(alone), err)
	}
	// But not before one that was recorded later.
	later := *kept[1]
	later.Began, later.Key = later.Began.Add(time.Hour), "later"
	b.Reset()
	if err := WriteRecord(&b, []*Row{&later}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other.o.Root, RecordFile), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err = Load(other.o.Root); err != nil || again.Find(own.ID).Key != "later" || len(again.All()) != 8 {
		t.Errorf("%d rows, %v", len(again.All()), err)
	}
}

// TestRecordLeavesOut: runs of a changed checkout, and of a lab that there is no more.
func TestRecordLeavesOut(t *testing.T) {
	r := newRig(t)
	r.o.Labs = []string{"alpha"}
	r.run(t)
	changed, gone := *r.rows.All()[0], *r.rows.All()[1]
	changed.Commit += "-0123"
	gone.Lab = "gamma"
	for _, row := range []*Row{&changed, &gone} {
		if err := r.rows.Put(row); err != nil {
			t.Fatal(err)
		}
	}
	kept, left := r.rows.Record()
	if len(kept) != 5 || len(left) != 1 || !strings.Contains(left[0], `at "0123456789abcdef-0123"`) {
		t.Errorf("%d kept, left out: %q", len(kept), left)
	}
	if err := os.WriteFile(filepath.Join(r.o.Root, RecordFile), []byte(`[{"lap": "alpha"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{second(Load(r.o.Root)), second(LoadRecord(r.o.Root))} {
		if err == nil || !strings.Contains(err.Error(), RecordFile) || !strings.Contains(err.Error(), "lap") || !strings.Contains(err.Error(), RecordCommand) {
			t.Errorf("a record with a typing mistake: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
