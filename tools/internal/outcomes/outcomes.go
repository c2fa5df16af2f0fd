// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcomes reads and writes outcomes.json, the committed record of what
// the labs of make test answered last: README's track record is made of it, and
// make test compares fresh answers with it. What changes from run to run without
// saying anything, such as durations, facts and folders, is not in it: that is
// below _output/lab.
package outcomes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/strictjson"
)

// File is the record's name, at the repository's root.
const File = "outcomes.json"

// Command takes the labs' last outcomes into the record.
const Command = "make outcomes"

// Outcome is what the record wants of one that a lab's run stores.
type Outcome struct {
	Lab      string   `json:"lab"`
	Variant  string   `json:"variant"`
	Profile  string   `json:"profile"`
	Seed     uint64   `json:"seed"`
	Commit   string   `json:"commit"`
	Expected string   `json:"expected"`
	Verdict  string   `json:"verdict"`
	Numbers  []Number `json:"numbers"`
}

// Number is something that a lab measured.
type Number struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // s, ms, bytes, …; empty for a count
}

// Suite is what lab suite writes.
type Suite struct {
	// LeftOut are variants that it did not run on purpose, by their labs.
	LeftOut  map[string][]string `json:"leftOut"`
	Outcomes []Outcome           `json:"outcomes"`
}

// Record is outcomes.json.
type Record struct {
	// Profile is that of all runs in it.
	Profile string `json:"profile"`
	// Labs are the last runs by the names of the labs.
	Labs map[string]*Run `json:"labs"`
}

// Run is what one lab answered.
type Run struct {
	Release string `json:"release"`          // of the product under test, e.g. "v1.9.11+holdfast.2"
	Commit  string `json:"commit,omitempty"` // that was run; with "-dirty" or "-mapped" where it was not that alone
	Seed    uint64 `json:"seed"`
	// Answers are the verdicts by variant.
	Answers map[string]string `json:"answers"`
	// LeftOut are the variants that make test leaves out. The others must be run by it.
	LeftOut []string `json:"leftOut,omitempty"`
	// Numbers are what was measured, by variant.
	Numbers map[string][]Number `json:"numbers,omitempty"`
}

// Load reads the record below root; there may be none yet.
func Load(root string) (*Record, error) {
	r := &Record{Labs: map[string]*Run{}}
	raw, err := os.ReadFile(filepath.Join(root, File))
	if os.IsNotExist(err) {
		return r, nil
	}
	if err != nil {
		return nil, exit.Preconditionf("the record of outcomes: %v", err)
	}
	if err := strictjson.Decode(raw, r); err != nil {
		return nil, exit.Preconditionf("%s: %v: correct it, or remove it and run %s", File, err, Command)
	}
	for lab, run := range r.Labs {
		if run == nil {
			return nil, exit.Preconditionf("%s: lab %s is null: remove it, or run %s", File, lab, Command)
		}
	}
	return r, nil
}

// Save writes the record below root.
func (r *Record) Save(root string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, File), b.Bytes(), 0o644)
}

// Verdict is what a lab answered in a variant; "" if that is not in the record.
func (r *Record) Verdict(lab, variant string) string {
	if run := r.Labs[lab]; run != nil {
		return run.Answers[variant]
	}
	return ""
}

// Put replaces a lab's run by one of its outcomes for each of variants. It takes
// none of a lab that did not answer as it must, or whose variants were not run
// on one commit in one profile. leftOut are those of variants that make test leaves out.
func (r *Record) Put(lab, release, profile string, variants, leftOut []string, all []Outcome) error {
	run := &Run{Release: release, Answers: map[string]string{}, LeftOut: leftOut}
	for _, v := range variants {
		i := slices.IndexFunc(all, func(o Outcome) bool { return o.Lab == lab && o.Variant == v && o.Profile == profile })
		if i < 0 {
			return exit.Preconditionf("lab %s has no outcome for the variant %q in profile %s: run make lab LAB=%s", lab, v, profile, lab)
		}
		o := all[i]
		if o.Verdict != o.Expected {
			return exit.Preconditionf("lab %s answered %s in the variant %q and must answer %s: mend that, or run it again (make lab LAB=%s)", lab, o.Verdict, v, o.Expected, lab)
		}
		if strings.Contains(o.Commit, "-") {
			return exit.Preconditionf("lab %s ran in the variant %q on %s: the record is of clean checkouts and their own binaries: commit or remove what is changed, and run it again (make lab LAB=%s)", lab, v, o.Commit, lab)
		}
		if len(run.Answers) > 0 && (o.Commit != run.Commit || o.Seed != run.Seed) {
			return exit.Preconditionf("lab %s: its variants were run with different commits or seeds: run all of them again (make lab LAB=%s)", lab, lab)
		}
		run.Commit, run.Seed, run.Answers[v] = o.Commit, o.Seed, o.Verdict
		if len(o.Numbers) > 0 {
			if run.Numbers == nil {
				run.Numbers = map[string][]Number{}
			}
			run.Numbers[v] = o.Numbers
		}
	}
	r.Profile, r.Labs[lab] = profile, run
	return nil
}

// Faults lists where fresh outcomes are not what the record says. A lab that is
// not in it, or a variant that either side lacks, is such a difference too, but for
// variants that make test always leaves out and for those of leftOut, by lab.
func (r *Record) Faults(fresh []Outcome, leftOut map[string][]string) []string {
	var bad []string
	ran := map[string]map[string]bool{}
	for _, o := range fresh {
		if ran[o.Lab] == nil {
			ran[o.Lab] = map[string]bool{}
		}
		ran[o.Lab][o.Variant] = true
		switch was := r.Verdict(o.Lab, o.Variant); {
		case was == "":
			bad = append(bad, fmt.Sprintf("lab %s (%s) answered %s, and is not in %s", o.Lab, o.Variant, o.Verdict, File))
		case was != o.Verdict:
			bad = append(bad, fmt.Sprintf("lab %s (%s) answered %s, and %s in %s", o.Lab, o.Variant, o.Verdict, was, File))
		}
	}
	for _, lab := range slices.Sorted(maps.Keys(ran)) {
		if r.Labs[lab] == nil {
			continue
		}
		for _, v := range slices.Sorted(maps.Keys(r.Labs[lab].Answers)) {
			if !ran[lab][v] && !slices.Contains(r.Labs[lab].LeftOut, v) && !slices.Contains(leftOut[lab], v) {
				bad = append(bad, fmt.Sprintf("lab %s (%s) is in %s, and was not run", lab, v, File))
			}
		}
	}
	return bad
}

// Error is the error for faults; nil for none.
func Error(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return exit.Preconditionf("the labs did not answer as %s says: %s; if the new answers are right, take them over with %s",
		File, strings.Join(faults, "; "), Command)
}
