// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sweeps runs labs while components are killed at random points, and keeps and
// shows what they answered: right or inconclusive, never wrong.
package sweeps

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/strictjson"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/sweep"
)

// File is where the rows of a checkout's own runs are kept, and with them the recorded ones,
// below the root.
const File = "_output/sweep/sweep.json"

// Each as what is to be killed: each kind of component in a run of its own.
const Each = "each"

// ID names a run of a sweep.
type ID struct {
	Lab     string         `json:"lab"`
	Variant labkit.Variant `json:"variant"`
	Profile labkit.Profile `json:"profile"`
	Seed    uint64         `json:"seed"`
	// Kill is the component that was asked for, "" for one by chance; Kills is how many.
	Kill  string `json:"kill,omitempty"`
	Kills int    `json:"kills"`
}

// Row is a run: without a kill (ID.Kills is 0), or of a sweep.
type Row struct {
	ID
	// Key is of what the run was made from, see proof.Keys.
	Key     string    `json:"key"`
	Commit  string    `json:"commit,omitempty"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Attempts is how often it was run until the kill met a component that ran.
	Attempts int            `json:"attempts"`
	Verdict  labkit.Verdict `json:"verdict"`
	Expected labkit.Verdict `json:"expected"`
	Why      string         `json:"why"`
	// Judged is the verdict of the history, Again that of the saved file judged again.
	Judged    labkit.Verdict `json:"judged"`
	Again     labkit.Verdict `json:"again"`
	Artefacts string         `json:"artefacts,omitempty"`
	// Report has the kills that were done, and of a run without a kill the components.
	Report sweep.Report `json:"report"`
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

// Rows are all that are known. They may be used by several goroutines.
type Rows struct {
	Root string

	mu   sync.Mutex
	rows map[ID]*Row
}

// Load reads the rows of this checkout's own runs and of the record; of two the later one, and the
// own one if they are of the same time.
func Load(root string) (*Rows, error) {
	recorded, err := LoadRecord(root)
	if err != nil {
		return nil, err
	}
	own, err := read(root, File, "remove it, and the runs are repeated")
	if err != nil {
		return nil, err
	}
	r := &Rows{Root: root}
	for _, row := range append(recorded, own...) {
		// File has copies of rows that were recorded when it was written.
		if had := r.rows[row.ID]; had == nil || !row.Began.Before(had.Began) {
			r.set(row)
		}
	}
	return r, nil
}

// read decodes the rows of a file below root; one that is missing has none.
func read(root, name, remedy string) ([]*Row, error) {
	raw, err := os.ReadFile(filepath.Join(root, name))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, exit.Preconditionf("rows of sweeps: %v", err)
	}
	var rows []*Row
	if err := strictjson.Decode(raw, &rows); err != nil {
		return nil, exit.Preconditionf("%s: %v: %s", name, err, remedy)
	}
	return rows, nil
}

// Find is the row of that ID, nil if there is none.
func (r *Rows) Find(id ID) *Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows[id]
}

// All are sorted by lab, variant, kill and seed.
func (r *Rows) All() []*Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sorted()
}

// Put replaces the row of the same ID, and writes the file.
func (r *Rows) Put(row *Row) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(row)
	raw, err := json.MarshalIndent(r.sorted(), "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(r.Root, File)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	// A sweep that is cut off must not leave half a file.
	if err := os.WriteFile(file+".new", append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (r *Rows) set(row *Row) {
	if r.rows == nil {
		r.rows = map[ID]*Row{}
	}
	r.rows[row.ID] = row
}

func (r *Rows) sorted() []*Row {
	return slices.SortedFunc(maps.Values(r.rows), func(a, b *Row) int { return strings.Compare(a.order(), b.order()) })
}

func (i ID) order() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%d\x00%s\x00%06d", i.Lab, i.Variant, i.Profile, i.Kills, i.Kill, i.Seed)
}
