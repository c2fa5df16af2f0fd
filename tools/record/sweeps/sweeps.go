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
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/sweep"
)

// Each as what is to be killed: each kind of component in a run of its own.
const Each = "each"

// ID names a kill test.
type ID struct {
	Lab     *labkit.Lab
	Variant labkit.Variant
	Profile labkit.Profile
	Seed    uint64
	// Kill is the component that was asked for, "" for one by chance; Kills is how many.
	Kill  string
	Kills int
}

// Row is a run: without a kill (ID.Kills is 0), or a kill test.
type Row struct {
	ID
	Commit  string
	Began   time.Time
	Seconds float64
	// Attempts is how often it was run until the kill met a component that ran.
	Attempts int
	Verdict  labkit.Verdict
	Expected labkit.Verdict
	Why      string
	// Judged is the verdict of the history, Again that of the saved file judged again.
	Judged    labkit.Verdict
	Again     labkit.Verdict
	Artefacts string
	// Report has the kills that were done, and of a run without a kill the components.
	Report sweep.Report
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

// line is the first of why.
func (r *Row) line() string {
	l, _, _ := strings.Cut(r.Why, "\n")
	return l
}

// Rows are those of one `lab sweep`. They may be used by several goroutines.
type Rows struct {
	mu   sync.Mutex
	rows map[ID]*Row
}

// All are sorted by lab, variant, kill and seed.
func (r *Rows) All() []*Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.rows), func(a, b *Row) int { return strings.Compare(a.order(), b.order()) })
}

// Put adds a row, in the place of the one of the same ID.
func (r *Rows) Put(row *Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[ID]*Row{}
	}
	r.rows[row.ID] = row
}

func (i ID) order() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%d\x00%s\x00%06d", i.Lab.Name, i.Variant, i.Profile, i.Kills, i.Kill, i.Seed)
}
