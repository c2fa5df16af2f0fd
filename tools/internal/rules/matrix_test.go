// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"testing"

	"holdfast/tools/internal/proof"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
)

// TestMatrix: the record of the proof matrix has each run of it, answered as it must, and the page
// is made of it. How old its runs are is not looked at: a run takes longer than a commit.
func TestMatrix(t *testing.T) {
	r := checkout(t)
	table, err := slugs.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	if err := labkit.UseTable(table); err != nil {
		t.Fatal(err)
	}
	rows, err := proof.Rows(table, nil, labkit.Short, 1)
	if err != nil {
		t.Fatal(err)
	}
	record, err := proof.LoadRecord(r.root)
	if err != nil {
		t.Fatal(err)
	}
	m := record.Matrix(rows)
	report(t, matrixFaults(m, record))
	var page bytes.Buffer
	if err := m.WriteMarkdown(&page); err != nil {
		t.Fatal(err)
	}
	r.gives(t, proof.MarkdownFile, page.String(), fmt.Sprintf("is not what %s gives: run %s", proof.RecordFile, proof.RecordCommand))
}

// matrixFaults lists runs of the matrix that are not recorded, or did not answer as they must, and
// recorded ones that are no part of it.
func matrixFaults(m *proof.Matrix, record *proof.Record) []string {
	var bad []string
	cells := map[proof.Cell]bool{}
	for _, a := range m.Answers() {
		cells[a.Cell] = true
		if state := a.State(); state != "right" {
			bad = append(bad, fmt.Sprintf("%s: lab %s (%s) is %s: run %s", proof.RecordFile, a.Cell.Lab, a.Cell.Variant, state, proof.RecordCommand))
		}
	}
	for _, x := range record.Runs {
		if !cells[x.Cell] {
			bad = append(bad, fmt.Sprintf("%s: lab %s (%s) is no run of the matrix: run %s", proof.RecordFile, x.Lab, x.Variant, proof.RecordCommand))
		}
	}
	return bad
}

func TestFindsMatrixFaults(t *testing.T) {
	cell := func(lab string) *proof.Cell {
		return &proof.Cell{Lab: lab, Variant: labkit.Ours, Profile: labkit.Short, Seed: 1}
	}
	run := func(lab string, v labkit.Verdict) proof.Recorded {
		return proof.Recorded{Cell: *cell(lab), Verdict: v, Expected: labkit.Absent}
	}
	record := &proof.Record{Runs: []proof.Recorded{run("right", labkit.Absent), run("wrong", labkit.Reproduced), run("open", labkit.Inconclusive), run("gone", labkit.Absent)}}
	m := record.Matrix([]proof.Row{{Ours: cell("right")}, {Ours: cell("wrong")}, {Ours: cell("open")}, {Ours: cell("missing")}, {Ours: cell("missing")}})
	found(t, matrixFaults(m, record), "lab wrong (ours) is wrong", "lab open (ours) is inconclusive", "lab missing (ours) is not run", "lab gone (ours) is no run of the matrix")
}
