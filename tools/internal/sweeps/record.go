// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"holdfast/tools/internal/proof"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/sweep"
)

// RecordFile is the committed record of the sweeps, at the repository's root. So another
// checkout repeats only what has changed since.
const RecordFile = "sweep.json"

// RecordCommand writes it, and the page that is made of it.
const RecordCommand = "lab sweep --write"

// Record are the rows that belong to a commit, without what only their folder has. Those of
// labs and variants that there are no more are dropped. It says which others it left out.
func (r *Rows) Record() (kept []*Row, left []string) {
	for _, row := range r.All() {
		switch l, err := labkit.Find(row.Lab); {
		case err != nil || !slices.Contains(l.Runs(), row.Variant):
		case !proof.OfCommit(row.Commit):
			left = append(left, fmt.Sprintf("%s (%s), seed %d, at %q", row.Lab, row.Variant, row.Seed, row.Commit))
		default:
			kept = append(kept, row.recorded(r.Root))
		}
	}
	return kept, left
}

// recorded is what the record has of a row. Only a run without a kill has to tell its
// components: the plans of the others are made from it.
func (r *Row) recorded(root string) *Row {
	c := *r
	c.Artefacts = ""
	c.Why = strings.ReplaceAll(r.line(), root+"/", "")
	if r.Kills > 0 {
		c.Report = sweep.Report{Done: r.Report.Done}
	}
	return &c
}

// WriteRecord writes rows, each as a line of its own.
func WriteRecord(w io.Writer, rows []*Row) error {
	lines, err := proof.JSONLines("", rows)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, lines+"\n")
	return err
}

// LoadRecord reads the committed rows below root alone; there may be none yet.
func LoadRecord(root string) ([]*Row, error) {
	return read(root, RecordFile, "correct it, or remove it and run "+RecordCommand)
}
