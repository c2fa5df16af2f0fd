// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/journal"
)

// Outcome is one variant's answer with what is known about its run.
type Outcome struct {
	Lab     string         `json:"lab"`
	Variant labkit.Variant `json:"variant"`
	Profile labkit.Profile `json:"profile"`
	Seed    uint64         `json:"seed"`
	// Commit is the checkout's, with "-dirty" where a file was changed or added since,
	// and "-mapped" where a binary was not the checkout's own; empty outside of git.
	Commit  string    `json:"commit,omitempty"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"` // that the run took
	// CPUSeconds is the time of the processors that it took, of all processes together.
	CPUSeconds float64        `json:"cpuSeconds,omitempty"`
	Expected   labkit.Verdict `json:"expected"`
	Verdict    labkit.Verdict `json:"verdict"`
	Why        string         `json:"why"`
	// Before are the verdicts, and why, of runs of the same suite that this one repeats.
	Before  []string         `json:"before,omitempty"`
	Facts   []string         `json:"facts,omitempty"`
	Numbers []journal.Number `json:"numbers,omitempty"`
	// Artefacts is the folder that was kept, relative to the checkout; "" if it
	// was removed.
	Artefacts string `json:"artefacts,omitempty"`
}

// AsExpected says whether the variant answered as it must.
func (o Outcome) AsExpected() bool { return o.Verdict == o.Expected }

// WriteOutcomes writes outcomes as a JSON array.
func WriteOutcomes(file string, outcomes []Outcome) error {
	raw, err := json.MarshalIndent(outcomes, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

// ReadOutcomes reads what WriteOutcomes wrote; of a file that is not there it
// reads nothing.
func ReadOutcomes(file string) ([]Outcome, error) {
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Outcome
	return out, json.Unmarshal(raw, &out)
}

// OutcomesFile is where the last outcomes of a lab are kept below root.
func OutcomesFile(root, lab string, p labkit.Profile) string {
	return filepath.Join(root, "_output", "lab", lab, "last-"+string(p)+".json")
}

// keepOutcomes puts outcomes in the place of those of the same variants.
func keepOutcomes(root, lab string, p labkit.Profile, outcomes []Outcome) error {
	file := OutcomesFile(root, lab, p)
	old, err := ReadOutcomes(file)
	if err != nil {
		return err
	}
	return WriteOutcomes(file, replace(old, outcomes))
}

// Commit names the checkout's commit as an Outcome has it.
func Commit(root string) string { return commitOf(root, false) }

// commitOf names the checkout's commit; mapped says that a binary is not its own.
func commitOf(root string, mapped bool) string {
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "HEAD")
	// The record, and what is made of it, change with each full run, and no binary or lab with them.
	if commit != "" && git("status", "--porcelain", "--", ":/", ":(exclude,top)"+base.RecordFile, ":(exclude,top)README.md", ":(exclude,top)docs/security.md", ":(exclude,top)docs/design/proof.md") != "" {
		commit += "-dirty"
	}
	if commit != "" && mapped {
		commit += "-mapped"
	}
	return commit
}
