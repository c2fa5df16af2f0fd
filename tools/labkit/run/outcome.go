// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
)

// WriteOutcomes writes outcomes as a JSON array.
func WriteOutcomes(file string, outcomes []labkit.Outcome) error {
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
func ReadOutcomes(file string) ([]labkit.Outcome, error) {
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []labkit.Outcome
	return out, json.Unmarshal(raw, &out)
}

// OutcomesFile is where the last outcomes of a lab are kept below root.
func OutcomesFile(root, lab string, p labkit.Profile) string {
	return filepath.Join(root, "_output", "lab", lab, "last-"+string(p)+".json")
}

// keepOutcomes puts outcomes in the place of those of the same variants.
func keepOutcomes(root, lab string, p labkit.Profile, outcomes []labkit.Outcome) error {
	file := OutcomesFile(root, lab, p)
	old, err := ReadOutcomes(file)
	if err != nil {
		return err
	}
	return WriteOutcomes(file, replace(old, outcomes))
}

// Commit names the checkout's commit as an outcome has it.
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
	if commit != "" && git("status", "--porcelain", "--", ":/", ":(exclude,top)"+base.RecordFile, ":(exclude,top)README.md", ":(exclude,top)docs/evidence/track-record.md", ":(exclude,top)docs/pictures", ":(exclude,top)docs/security.md", ":(exclude,top)docs/design/proof.md") != "" {
		commit += "-dirty"
	}
	if commit != "" && mapped {
		commit += "-mapped"
	}
	return commit
}
