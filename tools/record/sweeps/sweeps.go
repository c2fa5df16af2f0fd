// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sweeps runs labs while components are killed at random points, and shows what they
// answered: right or inconclusive, never wrong.
package sweeps

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// Each as what is to be killed: each kind of component in a run of its own.
const Each = "each"

// Row is a run: without a kill (Kills is 0), or a kill test.
type Row struct {
	run.Answer
	// Kill is the component that was asked for, "" for one by chance; Kills is how many.
	Kill  string
	Kills int
	// Attempts is how often it was run until the kill met a component that ran.
	Attempts int
}

// States of a row.
const (
	Right        = "right"
	Inconclusive = "inconclusive"
	Wrong        = "wrong"
	NotMet       = "not met"          // the run was over before the kill, or had the component stopped
	Unlike       = "judged otherwise" // the saved history gives another verdict
)

// State is what is to be said of a row in one word.
func (r *Row) State() string {
	switch {
	case r.Judged != r.Again:
		return Unlike
	case r.Verdict == r.Expected && r.Kills > 0 && len(r.Report.Done) == 0:
		return NotMet
	case r.Verdict == r.Expected:
		return Right
	case r.Verdict == labkit.Inconclusive:
		return Inconclusive
	}
	return Wrong
}

// Killed says what was killed and when.
func (r *Row) Killed() string {
	var out []string
	for _, d := range r.Report.Done {
		out = append(out, fmt.Sprintf("%s at %.1f s", d.Process, d.Killed))
	}
	return strings.Join(out, ", ")
}

// Rows are those of one `lab sweep`. They may be used by several goroutines.
type Rows struct {
	mu   sync.Mutex
	rows map[string]*Row // by Row.name
}

// All are sorted by lab, variant, kill and seed.
func (r *Rows) All() []*Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*Row
	for _, name := range slices.Sorted(maps.Keys(r.rows)) {
		all = append(all, r.rows[name])
	}
	return all
}

// Put adds a row, in the place of the one of the same run.
func (r *Rows) Put(row *Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string]*Row{}
	}
	r.rows[row.name()] = row
}

// name says which run it is.
func (r *Row) name() string {
	return fmt.Sprintf("%s\x00%s\x00%d\x00%s\x00%06d", r.Lab, r.Variant, r.Kills, r.Kill, r.Seed)
}
