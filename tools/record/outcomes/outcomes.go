// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcomes reads and writes the record of the last full run of the labs, from which
// README's track record and the page of the matrix are made: the outcomes, as they must be, of the
// profile short, as far as they last (outcome.Outcome.Lasting). Nothing is left out of a run because
// of it.
package outcomes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/outcome"
	"holdfast/tools/build/strictjson"
)

// File is the record's name below the repository's root.
const File = base.RecordFile

// Command runs all labs and writes the record.
const Command = "make test-all"

// Record has one outcome for each lab and variant.
type Record struct {
	Outcomes []outcome.Outcome
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
		case !o.OfCommit():
			return fmt.Errorf("%s: commit is %q, which is none of a checkout without changes", name, o.Commit)
		case err != nil:
			return fmt.Errorf("%s: date: %v", name, err)
		case !reflect.DeepEqual(o, o.Lasting()):
			return fmt.Errorf("%s: it has what changes from run to run", name)
		case slices.ContainsFunc(r.Outcomes[:i], func(p outcome.Outcome) bool { return p.Lab == o.Lab && p.Variant == o.Variant }):
			return fmt.Errorf("%s: is there twice", name)
		}
	}
	return nil
}

// Save writes the record below root, sorted, each outcome as a line of its own.
func (r *Record) Save(root string) error {
	slices.SortFunc(r.Outcomes, func(a, b outcome.Outcome) int {
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

// Find is the outcome of a lab in a variant; nil if there is none.
func (r *Record) Find(lab string, v base.Variant) *outcome.Outcome {
	i := slices.IndexFunc(r.Outcomes, func(o outcome.Outcome) bool { return o.Lab == lab && o.Variant == v })
	if i < 0 {
		return nil
	}
	return &r.Outcomes[i]
}

// Verdict is what a lab answered in a variant; "" if that is not in the record.
func (r *Record) Verdict(lab string, v base.Variant) string {
	if o := r.Find(lab, v); o != nil {
		return string(o.Verdict)
	}
	return ""
}

// Without is what a lab answered on ours without a fix, "" if that is not in the record.
func (r *Record) Without(lab, fix string) string { return r.Verdict(lab, base.Ours.Without(fix)) }

// Put adds what lasts of an outcome, in the place of the one of the same lab and variant.
func (r *Record) Put(o outcome.Outcome) {
	o = o.Lasting()
	if old := r.Find(o.Lab, o.Variant); old != nil {
		*old = o
		return
	}
	r.Outcomes = append(r.Outcomes, o)
}

// Keep drops the outcomes of labs and variants that keep does not want.
func (r *Record) Keep(keep func(lab string, v base.Variant) bool) {
	r.Outcomes = slices.DeleteFunc(r.Outcomes, func(o outcome.Outcome) bool { return !keep(o.Lab, o.Variant) })
}

// Oldest is the day of the oldest outcome; "" if there is none.
func (r *Record) Oldest() string {
	if len(r.Outcomes) == 0 {
		return ""
	}
	return slices.MinFunc(r.Outcomes, func(a, b outcome.Outcome) int { return strings.Compare(a.Date, b.Date) }).Date
}
