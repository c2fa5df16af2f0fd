// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"testing"

	"holdfast/tools/internal/sweeps"
	"holdfast/tools/labkit"
)

// TestSweep: no recorded run of a sweep is wrong, and the page is what the record gives.
func TestSweep(t *testing.T) {
	r := checkout(t)
	rows, err := sweeps.LoadRecord(r.root)
	if err != nil {
		t.Fatal(err)
	}
	report(t, sweepFaults(rows))
	var page bytes.Buffer
	if err := sweeps.WriteMarkdown(&page, rows); err != nil {
		t.Fatal(err)
	}
	r.gives(t, sweeps.MarkdownFile, page.String(), fmt.Sprintf("is not what %s gives: run %s", sweeps.RecordFile, sweeps.RecordCommand))
}

// sweepFaults are rows that may not be recorded and left so. How many are inconclusive is for
// the page to say.
func sweepFaults(rows []*sweeps.Row) (faults []string) {
	for _, row := range rows {
		if state := row.State(); state == sweeps.Wrong || state == sweeps.Unlike {
			faults = append(faults, fmt.Sprintf("%s: lab %s (%s), seed %d is %s: %s", sweeps.RecordFile, row.Lab, row.Variant, row.Seed, state, row.Why))
		}
	}
	return faults
}

func TestFindsSweepFaults(t *testing.T) {
	row := func(lab string, v, again labkit.Verdict) *sweeps.Row {
		return &sweeps.Row{ID: sweeps.ID{Lab: lab, Variant: labkit.Ours, Seed: 2, Kills: 1}, Verdict: v, Expected: labkit.Absent, Judged: v, Again: again, Why: "so"}
	}
	found(t, sweepFaults([]*sweeps.Row{row("right", labkit.Absent, labkit.Absent), row("open", labkit.Inconclusive, labkit.Inconclusive),
		row("wrong", labkit.Reproduced, labkit.Reproduced), row("unlike", labkit.Absent, labkit.Reproduced)}),
		"lab wrong (ours), seed 2 is wrong: so", "lab unlike (ours), seed 2 is judged otherwise: so")
}
