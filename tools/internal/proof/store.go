// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/strictjson"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// Result is what a cell answered, and the key of what it was made from then.
type Result struct {
	Key     string      `json:"key"`
	Outcome run.Outcome `json:"outcome"`
}

// Store keeps results below a checkout, a file for each cell.
type Store struct {
	Root string
	// Record has those of other checkouts; nil for none.
	Record *Record
}

func (s Store) file(c Cell) string {
	return filepath.Join(s.Root, "_output", "proof", "cells", c.Lab, fmt.Sprintf("%s-%s-seed%d.json", c.Variant.Dir(), c.Profile, c.Seed))
}

// Load returns the last result of a cell; nil if there is none.
func (s Store) Load(c Cell) (*Result, error) {
	raw, err := os.ReadFile(s.file(c))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Result{}
	if err := strictjson.Decode(raw, r); err != nil {
		return nil, exit.Preconditionf("%s: %v: remove it, and the run is repeated", s.file(c), err)
	}
	return r, nil
}

// Best is the last result of a cell here, or the recorded one if only that is of what is there
// now, or if there is no other.
func (s Store) Best(c Cell, key string) (*Result, error) {
	r, err := s.Load(c)
	if err != nil || s.Record == nil || !Due(r, key) {
		return r, err
	}
	if known := s.Record.Result(c); known != nil && (r == nil || !Due(known, key)) {
		return known, nil
	}
	return r, nil
}

// Save replaces the result of a cell.
func (s Store) Save(c Cell, r *Result) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	file := s.file(c)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	// A run that is cut off must not leave half a file.
	if err := os.WriteFile(file+".new", append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Note stores answers of other runs as cells. Those of another commit than this one, or of a
// checkout with changes, and those of labs that could not tell are left out. It says how many it
// has stored.
func Note(s Store, keyOf func(Cell) (string, error), outcomes []run.Outcome, commit string) (int, error) {
	n := 0
	for _, o := range outcomes {
		if o.Commit != commit || !OfCommit(commit) || o.Verdict == labkit.Inconclusive {
			continue
		}
		c := Cell{o.Lab, o.Variant, o.Profile, o.Seed}
		key, err := keyOf(c)
		if err == nil {
			err = s.Save(c, &Result{Key: key, Outcome: o})
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// OfCommit says whether a run was of a commit and nothing else: see run.Outcome.Commit.
func OfCommit(commit string) bool { return commit != "" && !strings.Contains(commit, "-") }

// Due says whether a cell has to be run: it never was, it was made from something
// else, or it could not tell. A wrong answer stands until what it is made from changes.
func Due(r *Result, key string) bool {
	return r == nil || r.Key != key || r.Outcome.Verdict == labkit.Inconclusive
}
