// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcome is what a lab answered in a variant: what its oracle tells, what the runner adds,
// and what the record keeps of both.
package outcome

import (
	"strings"

	"holdfast/tools/build/base"
)

// Verdict is a lab's answer for one variant.
type Verdict string

const (
	// Reproduced: the incident happened and the oracle saw it.
	Reproduced Verdict = "reproduced"
	// Absent: the trigger was there, proven, and the incident was not.
	Absent Verdict = "absent"
	// Inconclusive: the lab itself failed.
	Inconclusive Verdict = "inconclusive"

	// Passed and Failed are the answers of a check (see labkit.Lab.Check): there is no
	// incident that could be reproduced or absent.
	Passed Verdict = "passed"
	Failed Verdict = "failed"
)

// Number is something that a lab measured.
type Number struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // s, ms, bytes, …; empty for a count
}

// Outcome is what a lab answered in a variant. An oracle fills in Verdict, Why, Facts and Numbers.
type Outcome struct {
	Lab     string       `json:"lab"`
	Variant base.Variant `json:"variant"`
	Verdict Verdict      `json:"verdict"`
	Seed    uint64       `json:"seed"`
	// Commit is the checkout's, in full, with "-dirty" where a file was changed or added since,
	// and "-mapped" where a binary was not the checkout's own; empty outside of git.
	Commit  string   `json:"commit"`
	Date    string   `json:"date"` // of the run's start, as 2006-01-02, UTC
	Numbers []Number `json:"numbers,omitempty"`

	// What follows is not in the record: see Lasting.

	Profile string  `json:"profile,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // that the run took
	// CPUSeconds is the time of the processors that it took, of all processes together.
	CPUSeconds float64  `json:"cpuSeconds,omitempty"`
	Expected   Verdict  `json:"expected,omitempty"`
	Why        string   `json:"why,omitempty"` // what the oracle saw; the first line says it
	Facts      []string `json:"facts,omitempty"`
	// Before are the verdicts, and why, of runs of the same suite that this one repeats.
	Before []string `json:"before,omitempty"`
	// Artefacts is the folder that was kept, relative to the checkout; "" if it was removed.
	Artefacts string `json:"artefacts,omitempty"`
}

// Measure adds a number; unit is "s", "ms", "bytes", … or, for a count, "".
func (o *Outcome) Measure(name string, value float64, unit string) {
	o.Numbers = append(o.Numbers, Number{Name: name, Value: value, Unit: unit})
}

// AsExpected says whether the variant answered as it must.
func (o Outcome) AsExpected() bool { return o.Verdict == o.Expected }

// OfCommit says whether the run was of a commit and nothing else.
func (o Outcome) OfCommit() bool { return o.Commit != "" && !strings.Contains(o.Commit, "-") }

// FirstLine is that of Why.
func (o Outcome) FirstLine() string {
	line, _, _ := strings.Cut(o.Why, "\n")
	return line
}

// Lasting is what the record keeps: not what changes from run to run without saying anything, such
// as durations, facts and folders.
func (o Outcome) Lasting() Outcome {
	return Outcome{Lab: o.Lab, Variant: o.Variant, Verdict: o.Verdict, Seed: o.Seed, Commit: o.Commit, Date: o.Date, Numbers: o.Numbers}
}
