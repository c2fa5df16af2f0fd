// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// rig is a matrix of two variants whose labs and builds only say when they run.
type rig struct {
	*testing.T
	cells   []Cell
	mu      sync.Mutex
	events  []string
	answers []labkit.Outcome
}

var minusAlpha = base.Ours.Without("alpha")

func newRig(t *testing.T) *rig {
	_, all := table(t)
	r := &rig{T: t}
	for _, v := range []labkit.Variant{minusAlpha, labkit.Stock} {
		for _, l := range []string{"alpha", "both"} {
			r.cells = append(r.cells, Cell{all.Find(l), v})
		}
	}
	return r
}

func (r *rig) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

func (r *rig) run(ctx context.Context, lab func(Cell) error) (err error) {
	builds := 0
	r.answers, err = Run(ctx, r.cells, Options{AtOnce: 2, Out: io.Discard,
		Build: func(context.Context, []labkit.Binary) error { builds++; r.say("build %d", builds); return nil },
		Clean: func(v labkit.Variant) error { r.say("clean %s", v); return nil },
		Lab: func(_ context.Context, c Cell, _ io.Writer) ([]labkit.Outcome, error) {
			err := lab(c)
			r.say("end %s %s", c.Lab.Name, c.Variant)
			verdict := labkit.Absent
			if errors.Is(err, errUnsure) {
				verdict, err = labkit.Inconclusive, run.Failed{}
			}
			return []labkit.Outcome{{Lab: c.Lab.Name, Variant: c.Variant, Verdict: verdict}}, err
		}})
	return err
}

// errUnsure is that of a lab that cannot tell.
var errUnsure = errors.New("unsure")

func (r *rig) at(event string) int { return slices.Index(r.events, event) }

// The next variant is built while the last lab of the one before runs, and a variant without
// a fix is removed after its last lab, not before.
func TestRunOverlaps(t *testing.T) {
	r := newRig(t)
	err := r.run(t.Context(), func(c Cell) error {
		if c == r.cells[1] {
			for range 1000 {
				r.mu.Lock()
				built := slices.Contains(r.events, "build 2")
				r.mu.Unlock()
				if built {
					return nil
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Error("the next variant is not built while this lab runs")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	clean := r.at("clean ours -alpha")
	if clean < r.at("end alpha ours -alpha") || clean < r.at("end both ours -alpha") || r.at("clean stock") >= 0 {
		t.Errorf("%q", r.events)
	}
	if len(r.answers) != len(r.cells) {
		t.Errorf("%d answers of %d cells: %v", len(r.answers), len(r.cells), r.answers)
	}
}

// A lab that cannot run ends the rest before it begins, and is named; a wrong answer does not.
func TestRunStops(t *testing.T) {
	r := newRig(t)
	second := make(chan struct{})
	err := r.run(t.Context(), func(c Cell) error {
		if c == r.cells[0] {
			<-second
			return errors.New("no dockerd")
		}
		close(second)
		time.Sleep(50 * time.Millisecond)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "lab alpha (ours -alpha): no dockerd") {
		t.Errorf("%v", err)
	}
	if r.at("end both stock") >= 0 || r.at("end both ours -alpha") < 0 {
		t.Errorf("%q", r.events)
	}
	r = newRig(t)
	if err := r.run(t.Context(), func(Cell) error { return run.Failed{} }); err != nil || r.at("end both stock") < 0 {
		t.Errorf("%v: %q", err, r.events)
	}
	r = newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.run(ctx, func(Cell) error { return nil }); err == nil || len(r.events) > 1 {
		t.Errorf("%v: %q", err, r.events)
	}
}

// A lab that cannot tell runs again, up to three times; a wrong answer stands.
func TestRunRepeatsWhatCannotTell(t *testing.T) {
	for name, x := range map[string]struct {
		unsure int
		runs   int
		last   labkit.Verdict
	}{"at once": {0, 1, labkit.Absent}, "the third time": {2, 3, labkit.Absent}, "never": {9, 3, labkit.Inconclusive}} {
		r := newRig(t)
		r.cells = r.cells[:1]
		runs := 0
		err := r.run(t.Context(), func(Cell) error {
			if runs++; runs <= x.unsure {
				return errUnsure
			}
			return nil
		})
		if err != nil || runs != x.runs || len(r.answers) != 1 || r.answers[0].Verdict != x.last {
			t.Errorf("%s: %d runs, %v, %v", name, runs, r.answers, err)
		}
	}
}
