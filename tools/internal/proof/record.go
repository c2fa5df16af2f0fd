// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/strictjson"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// RecordFile is the committed record of the matrix, at the repository's root.
const RecordFile = "matrix.json"

// RecordCommand writes it, and the pages that are made of it.
const RecordCommand = "lab proof --write"

// Record is what each run of the matrix answered last. So another checkout repeats only what has
// changed since.
type Record struct {
	// Made is the day of the last change, as 2006-01-02.
	Made string `json:"made"`
	// Runs are sorted by lab and variant.
	Runs []Recorded `json:"runs"`
}

// Recorded is one run.
type Recorded struct {
	Cell
	// Key is that of Keys.Key; "" if it is not known, and the run is due.
	Key      string         `json:"key"`
	Verdict  labkit.Verdict `json:"verdict"`
	Expected labkit.Verdict `json:"expected"`
	Commit   string         `json:"commit"`
}

// LoadRecord reads the record below root; there may be none yet.
func LoadRecord(root string) (*Record, error) {
	r := &Record{}
	raw, err := os.ReadFile(filepath.Join(root, RecordFile))
	if os.IsNotExist(err) {
		return r, nil
	}
	if err != nil {
		return nil, exit.Preconditionf("the record of the proof matrix: %v", err)
	}
	if err := strictjson.Decode(raw, r); err != nil {
		return nil, exit.Preconditionf("%s: %v: correct it, or remove it and run %s", RecordFile, err, RecordCommand)
	}
	return r, nil
}

// Save writes the record below root, each run as a line of its own.
func (r *Record) Save(root string) error {
	runs, err := JSONLines("  ", r.Runs)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("{\n  \"made\": %q,\n  \"runs\": %s\n}\n", r.Made, runs)
	return os.WriteFile(filepath.Join(root, RecordFile), []byte(text), 0o644)
}

// JSONLines is a JSON array of values, each on a line of its own, so that a change of one is a
// change of one line. indent is that of the line in which the array begins.
func JSONLines[T any](indent string, values []T) (string, error) {
	lines := make([]string, len(values))
	for i, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		lines[i] = "\n" + indent + "  " + string(line)
	}
	return "[" + strings.Join(lines, ",") + "\n" + indent + "]", nil
}

func (r *Record) find(c Cell) *Recorded {
	i := slices.IndexFunc(r.Runs, func(x Recorded) bool { return x.Cell == c })
	if i < 0 {
		return nil
	}
	return &r.Runs[i]
}

// Result is the recorded one of a cell, without what only the run's folder has; nil if there is
// none.
func (r *Record) Result(c Cell) *Result {
	x := r.find(c)
	if x == nil {
		return nil
	}
	return &Result{Key: x.Key, Outcome: run.Outcome{Lab: x.Lab, Variant: x.Variant, Profile: x.Profile, Seed: x.Seed,
		Commit: x.Commit, Verdict: x.Verdict, Expected: x.Expected}}
}

// Without is what a lab answered on ours without a slug, "" if that was not run.
func (r *Record) Without(lab, slug string) string {
	for _, x := range r.Runs {
		if x.Lab == lab && x.Variant == base.Ours.Without(slug) {
			return string(x.Verdict)
		}
	}
	return ""
}

// Matrix puts the recorded runs into rows. None is stale: each has its commit.
func (r *Record) Matrix(rows []Row) *Matrix {
	made, _ := time.Parse(time.DateOnly, r.Made)
	m := &Matrix{Made: made}
	for _, row := range rows {
		m.Rows = append(m.Rows, row.show(func(c Cell) *Answer { return &Answer{Cell: c, Result: r.Result(c)} }))
	}
	return m
}

// Take replaces the recorded runs by those of the matrix that answered as they must, from a
// checkout without changes, and drops those of cells that there are no more. It says which
// answers it did not take.
func (r *Record) Take(m *Matrix) (left []string) {
	old := *r
	r.Runs = nil
	for _, a := range m.Answers() {
		x := old.find(a.Cell)
		switch {
		case a.Result == nil:
		case !a.Outcome.AsExpected(), !OfCommit(a.Outcome.Commit):
			left = append(left, fmt.Sprintf("%s (%s): %s at %q", a.Cell.Lab, a.Cell.Variant, a.State(), a.Outcome.Commit))
		case !a.Stale || x == nil:
			x = &Recorded{a.Cell, a.Key, a.Outcome.Verdict, a.Outcome.Expected, a.Outcome.Commit}
		}
		if x != nil {
			r.Runs = append(r.Runs, *x)
		}
	}
	slices.SortFunc(r.Runs, func(a, b Recorded) int {
		if c := strings.Compare(a.Lab, b.Lab); c != 0 {
			return c
		}
		return strings.Compare(string(a.Variant), string(b.Variant))
	})
	if !slices.Equal(old.Runs, r.Runs) {
		r.Made = m.Made.Format(time.DateOnly)
	}
	return left
}
