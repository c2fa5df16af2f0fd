// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcomes reads and writes the record of the last full run of the labs, from which
// README's track record and the page of the matrix are made. Nothing is left out of a run because
// of it. What changes from run to run without saying anything, such as durations, facts and
// folders, is not in it: that is below _output/lab.
package outcomes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/strictjson"
)

// File is the record's name below the repository's root.
const File = base.RecordFile

// Command runs all labs and writes the record.
const Command = "make test-all"

// Number is something that a lab measured.
type Number struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // s, ms, bytes, …; empty for a count
}

// Outcome is what a lab answered in a variant, in the profile short, as it must.
type Outcome struct {
	Lab     string       `json:"lab"`
	Variant base.Variant `json:"variant"`
	Verdict string       `json:"verdict"`
	Seed    uint64       `json:"seed"`
	Commit  string       `json:"commit"` // in full, of a checkout without changes
	Date    string       `json:"date"`   // of the run, as 2006-01-02, UTC
	Numbers []Number     `json:"numbers,omitempty"`
}

// Record has one outcome for each lab and variant.
type Record struct {
	Outcomes []Outcome
}

// Load reads the record below root; there may be none yet.
func Load(root string) (*Record, error) {
	raw, err := os.ReadFile(filepath.Join(root, File))
	if os.IsNotExist(err) {
		return &Record{}, nil
	}
	r := &Record{}
	if err == nil {
		err = strictjson.Decode(raw, &r.Outcomes)
	}
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, exit.Preconditionf("%s: %v: correct it, or remove it and run %s", File, err, Command)
	}
	return r, nil
}

// check wants each outcome whole, and each lab and variant once.
func (r *Record) check() error {
	for i, o := range r.Outcomes {
		name := fmt.Sprintf("outcome %d, lab %q (%s)", i+1, o.Lab, o.Variant)
		switch _, err := time.Parse(time.DateOnly, o.Date); {
		case o.Lab == "" || o.Variant == "" || o.Verdict == "":
			return fmt.Errorf("%s: lab, variant and verdict must be there", name)
		case !OfCommit(o.Commit):
			return fmt.Errorf("%s: commit is %q, which is none of a checkout without changes", name, o.Commit)
		case err != nil:
			return fmt.Errorf("%s: date: %v", name, err)
		case slices.ContainsFunc(r.Outcomes[:i], o.same):
			return fmt.Errorf("%s: is there twice", name)
		}
	}
	return nil
}

// Save writes the record below root, sorted, each outcome as a line of its own.
func (r *Record) Save(root string) error {
	slices.SortFunc(r.Outcomes, func(a, b Outcome) int {
		return strings.Compare(a.Lab+"\x00"+string(a.Variant), b.Lab+"\x00"+string(b.Variant))
	})
	lines := make([]string, len(r.Outcomes))
	for i, o := range r.Outcomes {
		line, err := json.Marshal(o)
		if err != nil {
			return err
		}
		lines[i] = "\n  " + string(line)
	}
	return os.WriteFile(filepath.Join(root, File), []byte("["+strings.Join(lines, ",")+"\n]\n"), 0o644)
}

func (o Outcome) same(p Outcome) bool { return o.Lab == p.Lab && o.Variant == p.Variant }

// Find is the outcome of a lab in a variant; nil if there is none.
func (r *Record) Find(lab string, v base.Variant) *Outcome {
	i := slices.IndexFunc(r.Outcomes, Outcome{Lab: lab, Variant: v}.same)
	if i < 0 {
		return nil
	}
	return &r.Outcomes[i]
}

// Verdict is what a lab answered in a variant; "" if that is not in the record.
func (r *Record) Verdict(lab string, v base.Variant) string {
	if o := r.Find(lab, v); o != nil {
		return o.Verdict
	}
	return ""
}

// Without is what a lab answered on ours without a fix, "" if that is not in the record.
func (r *Record) Without(lab, fix string) string { return r.Verdict(lab, base.Ours.Without(fix)) }

// Put adds an outcome, in the place of the one of the same lab and variant.
func (r *Record) Put(o Outcome) {
	if old := r.Find(o.Lab, o.Variant); old != nil {
		*old = o
		return
	}
	r.Outcomes = append(r.Outcomes, o)
}

// Keep drops the outcomes of labs and variants that keep does not want.
func (r *Record) Keep(keep func(lab string, v base.Variant) bool) {
	r.Outcomes = slices.DeleteFunc(r.Outcomes, func(o Outcome) bool { return !keep(o.Lab, o.Variant) })
}

// Oldest is the day of the oldest outcome; "" if there is none.
func (r *Record) Oldest() string {
	if len(r.Outcomes) == 0 {
		return ""
	}
	return slices.MinFunc(r.Outcomes, func(a, b Outcome) int { return strings.Compare(a.Date, b.Date) }).Date
}

// OfCommit says whether a run was of a commit and nothing else: see run.Outcome.Commit.
func OfCommit(commit string) bool { return commit != "" && !strings.Contains(commit, "-") }
