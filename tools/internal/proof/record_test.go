// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

func cellOf(lab string, v labkit.Variant) Cell {
	return Cell{Lab: lab, Variant: v, Profile: labkit.Short, Seed: 1}
}

func answered(c Cell, key, commit string, verdict labkit.Verdict) *Result {
	return &Result{Key: key, Outcome: run.Outcome{Lab: c.Lab, Variant: c.Variant, Profile: c.Profile, Seed: c.Seed, Commit: commit, Verdict: verdict, Expected: labkit.Absent}}
}

func TestRecordFile(t *testing.T) {
	root := t.TempDir()
	if r, err := LoadRecord(root); err != nil || len(r.Runs) != 0 {
		t.Errorf("without a file: %+v, %v", r, err)
	}
	want := &Record{Made: "2026-01-02", Runs: []Recorded{
		{cellOf("a", "ours -a"), "k", labkit.Reproduced, labkit.Reproduced, "c"},
		{cellOf("b", labkit.Ours), "", labkit.Absent, labkit.Absent, "d"}}}
	for range 2 { // the second time over the first
		if err := want.Save(root); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadRecord(root)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	raw, _ := os.ReadFile(filepath.Join(root, RecordFile))
	if n := strings.Count(string(raw), "\n"); n != 7 {
		t.Errorf("%d lines: each run is to be one\n%s", n, raw)
	}
	if w := got.Without("a", "a"); w != "reproduced" {
		t.Errorf("a without a answered %q", w)
	}
	if w := got.Without("b", "a"); w != "" {
		t.Errorf("b without a answered %q", w)
	}
	if err := os.WriteFile(filepath.Join(root, RecordFile), raw[:len(raw)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRecord(root); err == nil || !strings.Contains(err.Error(), RecordFile) {
		t.Errorf("half a file: %v", err)
	}
}

// A recorded result stands for a run here only if it is of what is there now.
func TestBest(t *testing.T) {
	c := cellOf("x", labkit.Ours)
	for what, x := range map[string]struct {
		here, recorded *Result
		want           string // commit, "" for none
	}{
		"neither":                  {nil, nil, ""},
		"here":                     {answered(c, "now", "here", labkit.Absent), nil, "here"},
		"recorded":                 {nil, answered(c, "now", "there", labkit.Absent), "there"},
		"recorded before":          {nil, answered(c, "before", "there", labkit.Absent), "there"},
		"both":                     {answered(c, "now", "here", labkit.Absent), answered(c, "now", "there", labkit.Absent), "here"},
		"here before":              {answered(c, "before", "here", labkit.Absent), answered(c, "now", "there", labkit.Absent), "there"},
		"both before":              {answered(c, "before", "here", labkit.Absent), answered(c, "older", "there", labkit.Absent), "here"},
		"wrong here":               {answered(c, "now", "here", labkit.Reproduced), answered(c, "now", "there", labkit.Absent), "here"},
		"here it could not tell":   {answered(c, "now", "here", labkit.Inconclusive), answered(c, "now", "there", labkit.Absent), "there"},
		"neither could ever tell":  {answered(c, "now", "here", labkit.Inconclusive), answered(c, "now", "there", labkit.Inconclusive), "here"},
		"recorded without its key": {nil, answered(c, "", "there", labkit.Absent), "there"},
	} {
		s := Store{Root: t.TempDir(), Record: &Record{}}
		if x.here != nil {
			if err := s.Save(c, x.here); err != nil {
				t.Fatal(err)
			}
		}
		if r := x.recorded; r != nil {
			s.Record.Runs = []Recorded{{c, r.Key, r.Outcome.Verdict, r.Outcome.Expected, r.Outcome.Commit}}
		}
		got, err := s.Best(c, "now")
		if err != nil || (got == nil) != (x.want == "") || got != nil && got.Outcome.Commit != x.want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if !Due((&Record{Runs: []Recorded{{Cell: c, Verdict: labkit.Absent}}}).Result(c), "now") {
		t.Error("a recorded run without its key is not due")
	}
}

func TestTake(t *testing.T) {
	commit := strings.Repeat("c", 40)
	kept := func(lab string) Recorded {
		return Recorded{cellOf(lab, labkit.Ours), "before", labkit.Absent, labkit.Absent, "b"}
	}
	m := &Matrix{Made: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	add := func(lab, key, commit string, v labkit.Verdict, stale bool) {
		c := cellOf(lab, labkit.Ours)
		a := &Answer{Cell: c, Stale: stale}
		if v != "" {
			a.Result = answered(c, key, commit, v)
		}
		m.Rows = append(m.Rows, Shown{Lab: lab, Ours: a}, Shown{Lab: lab, Ours: a})
	}
	add("new", "now", commit, labkit.Absent, false)
	add("again", "now", commit, labkit.Absent, false)
	add("wrong", "now", commit, labkit.Reproduced, false)
	add("dirty", "now", commit+"-dirty", labkit.Absent, false)
	add("stale", "older", commit, labkit.Absent, true)
	add("stale-wrong", "older", commit, labkit.Reproduced, true)
	add("not-run", "", "", "", false)
	add("never", "", "", "", false)
	r := &Record{Made: "2026-01-01", Runs: []Recorded{kept("again"), kept("dirty"), kept("gone"), kept("not-run"), kept("stale"), kept("wrong")}}
	left := r.Take(m)
	now := func(lab string) Recorded {
		return Recorded{cellOf(lab, labkit.Ours), "now", labkit.Absent, labkit.Absent, commit}
	}
	want := &Record{Made: "2026-03-04", Runs: []Recorded{now("again"), kept("dirty"), now("new"), kept("not-run"), kept("stale"), kept("wrong")}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got\n%+v\nwant\n%+v", r, want)
	}
	if len(left) != 3 || !strings.HasPrefix(left[0], "wrong (ours): wrong") || !strings.HasPrefix(left[1], "dirty (ours): right") || !strings.HasPrefix(left[2], "stale-wrong (ours): stale") {
		t.Errorf("left out: %q", left)
	}
	made := r.Made
	m.Made = m.Made.AddDate(0, 0, 1)
	if r.Take(m); r.Made != made {
		t.Errorf("nothing changed, and the day is %s", r.Made)
	}
}
