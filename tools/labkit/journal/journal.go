// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal is what a run says and keeps while it runs: its steps on the
// console and in events.log, what it observed in history.jsonl, facts and numbers for
// the outcome, dumps for who must find out what happened.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdfast/tools/build/outcome"
	"holdfast/tools/labkit/history"
)

// Journal is one run's. Its zero value is not usable; see New.
type Journal struct {
	// Began is when the run did.
	Began time.Time

	label   string // of each line on the console: the variant
	console io.Writer
	file    *os.File // of the history
	history *history.Writer

	mu      sync.Mutex
	log     *os.File
	facts   []string
	numbers []outcome.Number
	dumps   []func(context.Context, string) error
}

// New opens dir/events.log and dir/history.jsonl, which Close closes.
func New(dir string, b history.Begin, console io.Writer) (*Journal, error) {
	log, err := os.Create(filepath.Join(dir, "events.log"))
	if err != nil {
		return nil, err
	}
	j := &Journal{Began: time.Now(), label: b.Variant, console: console, log: log}
	if j.file, err = os.Create(filepath.Join(dir, history.File)); err == nil {
		j.history, err = history.NewWriter(j.file, b)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Close closes the files.
func (j *Journal) Close() error { return errors.Join(j.log.Close(), j.file.Close()) }

// History is where Record writes.
func (j *Journal) History() *history.Writer { return j.history }

// Record puts an observation into the history, see package history.
func (j *Journal) Record(v any) { j.history.Record(v) }

// Step says what the lab does now, on the console and in events.log.
func (j *Journal) Step(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	fmt.Fprintf(j.log, "%s %s\n", now.UTC().Format("15:04:05.000"), s)
	fmt.Fprintf(j.console, "  %6.1fs  %-13s %s\n", now.Sub(j.Began).Seconds(), j.label, s)
}

// Logf writes to events.log only.
func (j *Journal) Logf(format string, a ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.log, "%s   %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, a...))
}

// Fact is an observation that is printed below the verdict.
func (j *Journal) Fact(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	j.mu.Lock()
	j.facts = append(j.facts, s)
	j.mu.Unlock()
	j.Logf("fact: %s", s)
}

// Measure keeps a number for the outcome; unit is "s", "ms", "bytes", … or, for a
// count, "".
func (j *Journal) Measure(name string, value float64, unit string) {
	j.mu.Lock()
	j.numbers = append(j.numbers, outcome.Number{Name: name, Value: value, Unit: unit})
	j.mu.Unlock()
	j.Logf("measured: %s %g %s", name, value, unit)
}

// Facts are those so far.
func (j *Journal) Facts() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.facts)
}

// Numbers are those so far.
func (j *Journal) Numbers() []outcome.Number {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.numbers)
}

// OnDump has f write artefacts into a directory when the answer is wrong,
// inconclusive, or artefacts are kept. It is called before anything is stopped.
func (j *Journal) OnDump(f func(ctx context.Context, dir string) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dumps = append(j.dumps, f)
}

// Dump calls what OnDump registered. An error goes to events.log.
func (j *Journal) Dump(ctx context.Context, dir string) {
	j.mu.Lock()
	ds := slices.Clone(j.dumps)
	j.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		j.Logf("dump: %v", err)
		return
	}
	for _, d := range ds {
		if err := d(ctx, dir); err != nil {
			j.Logf("dump: %v", err)
		}
	}
}
