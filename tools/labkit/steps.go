// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"errors"
	"fmt"
	"os"

	"holdfast/tools/labkit/history"
)

// Step is a line of the plan with what it does, so that what is printed is what runs.
type Step struct {
	Text string
	// Do must honour ctx. Its error makes the run Inconclusive, but Enough.
	Do func(ctx context.Context) error
	// Always is for a step that is done after Enough too: one that looks whether the
	// lab stood on firm ground.
	Always bool
}

// AllRun is the step that ends a lab: alive looks whether the components that it needs still run.
func AllRun(alive func(ctx context.Context) error) Step {
	return Step{Text: "check that all components run", Always: true, Do: alive}
}

// Enough is what a step returns when what is recorded decides, and the steps after
// it would not change that. The history has its end then.
var Enough = errors.New("enough is recorded")

// Oracle tells the verdict from what was recorded.
type Oracle struct {
	// Text is printed with the plan, behind "oracle: ".
	Text []string
	// Judge is a pure function: it looks at the history and at nothing else, and
	// answers the same whenever it is asked. What it needs and does not find makes
	// it Inconclusive; it answers Absent only where the history shows the trigger.
	Judge func(*history.History) Outcome
}

// PlanOf is what is printed before a run of v.
func (l *Lab) PlanOf(v Variant, p Profile, seed uint64) []string {
	var lines []string
	for _, s := range l.Steps(&Env{Lab: l, Variant: v, Profile: p, Seed: seed, Rand: NewRand(l.Name, seed)}) {
		lines = append(lines, s.Text)
	}
	for _, o := range l.Oracle.Text {
		lines = append(lines, "oracle: "+o)
	}
	return lines
}

// Drive runs the lab in e and judges it.
func (l *Lab) Drive(ctx context.Context, e *Env) (Outcome, error) {
	steps, enough := l.Steps(e), false
	for i, s := range steps {
		if enough && !s.Always {
			continue
		}
		e.Step("%d of %d: %s", i+1, len(steps), s.Text)
		if i > 0 || len(steps) == 1 {
			e.Sweep.Begin(ctx) // the first step sets up
		}
		err := s.Do(ctx)
		if errors.Is(err, Enough) && ctx.Err() == nil {
			e.Step("enough is recorded")
			enough = true
			continue
		}
		if err != nil {
			err = fmt.Errorf("step %d: %w", i+1, err)
			e.History().Fail(err)
			return Outcome{}, err
		}
	}
	e.Sweep.End(ctx)
	if err := e.History().End(); err != nil {
		return Outcome{}, err
	}
	h, err := ReadHistory(e.Path(history.File))
	if err != nil {
		return Outcome{}, err
	}
	return l.Judge(h), nil
}

// ReadHistory reads a file that a run wrote.
func ReadHistory(file string) (*history.History, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := history.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return h, nil
}

// Judge is the lab's oracle, asked about a history that is whole. Of any other, and
// of one that the oracle could not read, nothing can be told.
func (l *Lab) Judge(h *history.History) Outcome {
	if h.Lab != l.Name && h.Whole() == nil {
		return InconclusiveBecause("the history is of lab %s, not of %s", h.Lab, l.Name)
	}
	if err := h.Whole(); err != nil {
		return InconclusiveBecause("the history is incomplete: %v", err)
	}
	res := l.Oracle.Judge(h)
	if err := h.Err(); err != nil {
		return InconclusiveBecause("the history: %v", err)
	}
	return res
}
