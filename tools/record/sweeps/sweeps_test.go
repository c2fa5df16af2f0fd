// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
	"holdfast/tools/labkit/sweep"
)

var alpha, beta = &labkit.Lab{Name: "alpha"}, &labkit.Lab{Name: "beta"}

// rig is labs that only say that they run.
type rig struct {
	mu   sync.Mutex
	ran  []string
	rows *Rows
	o    Options
	// answer is that of a run with kills; by default all is right.
	answer func(name string, v labkit.Variant, kills []sweep.Kill, seed uint64) *run.Answer
}

func right(v labkit.Variant) *run.Answer {
	e := labkit.DefaultExpect[v]
	return &run.Answer{Outcome: labkit.Outcome{Verdict: e, Expected: e, Why: "so"}, Judged: e, Again: e}
}

func newRig(t *testing.T) *rig {
	r := &rig{}
	r.o = Options{Labs: []*labkit.Lab{alpha, beta}, Profile: labkit.Short, Seeds: 2, Kills: 1, AtOnce: 2, Out: io.Discard,
		Lab: func(_ context.Context, l *labkit.Lab, v labkit.Variant, kills []sweep.Kill, o run.Options) (*run.Answer, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			var what []string
			for _, k := range kills {
				what = append(what, k.Process)
			}
			r.ran = append(r.ran, fmt.Sprintf("%s %s %d %v", l.Name, v, o.Seed, what))
			s := right(v)
			if r.answer != nil {
				if got := r.answer(l.Name, v, kills, o.Seed); got != nil {
					s = got
				}
			}
			s.Lab, s.Variant, s.Seed = l.Name, v, o.Seed
			s.Report = sweep.Report{Seen: []sweep.Seen{{Component: sweep.Etcd, Process: "etcd"}, {Component: sweep.Kubelet, Process: "node1-kubelet"}}, Window: 10, Done: s.Report.Done}
			if len(kills) > 0 && s.Report.Done == nil {
				s.Report.Done = []sweep.Done{{Kill: kills[0], Killed: kills[0].At}}
			}
			return s, nil
		}}
	return r
}

func (r *rig) run(t *testing.T) {
	t.Helper()
	r.ran, r.rows = nil, &Rows{}
	if err := Run(t.Context(), r.rows, r.o); err != nil {
		t.Fatal(err)
	}
}

// TestRun: each variant runs without a kill, then with one for each seed; both components are
// met.
func TestRun(t *testing.T) {
	r := newRig(t)
	r.run(t)
	if len(r.ran) != 2*2*3 {
		t.Errorf("%q", r.ran)
	}
	of := map[string][]string{}
	for _, s := range r.ran {
		f := strings.Fields(s)
		of[f[0]+f[1]] = append(of[f[0]+f[1]], f[3])
	}
	for k, got := range of {
		slices.Sort(got[1:])
		if strings.Join(got, " ") != "[] [etcd] [node1-kubelet]" {
			t.Errorf("%s: %v", k, got)
		}
	}
	if f := Faults(r.rows.All()); len(f) != 0 {
		t.Error(f)
	}
	r.o.Kill, r.o.Only, r.o.Labs = Each, []labkit.Variant{labkit.Ours}, []*labkit.Lab{beta}
	if r.run(t); len(r.ran) != 5 || len(r.rows.All()) != 5 {
		t.Errorf("each: %q, %d rows", r.ran, len(r.rows.All()))
	}
}

// TestWrong: each way in which a kill test does not pass is told.
func TestWrong(t *testing.T) {
	r := newRig(t)
	r.o.Labs = []*labkit.Lab{alpha}
	met := 0
	r.answer = func(name string, v labkit.Variant, kills []sweep.Kill, seed uint64) *run.Answer {
		s := right(v)
		switch {
		case len(kills) == 0:
			return nil
		case v == labkit.Stock && seed == 1:
			s.Verdict, s.Judged, s.Again, s.Why = labkit.Absent, labkit.Absent, labkit.Absent, "not seen\nat all"
		case v == labkit.Stock:
			s.Verdict, s.Judged, s.Again, s.Why = labkit.Inconclusive, labkit.Inconclusive, labkit.Inconclusive, "a gap | here, x.log"
		case seed == 1:
			s.Again = labkit.Reproduced
		default:
			met++
			s.Report.Done = []sweep.Done{}
		}
		return s
	}
	r.run(t)
	if met != attempts {
		t.Errorf("a kill that meets nothing was tried %d times", met)
	}
	faults := strings.Join(Faults(r.rows.All()), "\n")
	for _, want := range []string{"alpha (stock), seed 1, killed ", ": absent, must be reproduced: not seen\n", "alpha (ours), seed 1: judged absent, and the saved history reproduced",
		"1 of 3 runs are inconclusive, more than 1 in 20"} {
		if !strings.Contains(faults, want) {
			t.Errorf("no %q in\n%s", want, faults)
		}
	}
	var text bytes.Buffer
	if err := Print(&text, r.rows.All()); err != nil {
		t.Fatal(err)
	}
	if want := "4 runs with a kill: 0 right, 1 inconclusive, 1 wrong, 1 not met, 1 judged otherwise"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, &text)
	}
}

// TestPlainWrong: a lab that is not right without a kill is not swept, and named.
func TestPlainWrong(t *testing.T) {
	r := newRig(t)
	r.o.Labs, r.o.Only = []*labkit.Lab{alpha}, []labkit.Variant{labkit.Ours}
	r.answer = func(_ string, v labkit.Variant, _ []sweep.Kill, _ uint64) *run.Answer {
		s := right(v)
		s.Verdict, s.Why = labkit.Inconclusive, "left behind"
		return s
	}
	r.run(t)
	if f := Faults(r.rows.All()); len(r.ran) != attempts || len(f) != 1 || f[0] != "alpha (ours) without a kill: inconclusive, must be absent: left behind" {
		t.Errorf("%q %q", r.ran, f)
	}
}

// TestRunError: a lab that cannot be run ends the kill test.
func TestRunError(t *testing.T) {
	r := newRig(t)
	r.o.Lab = func(context.Context, *labkit.Lab, labkit.Variant, []sweep.Kill, run.Options) (*run.Answer, error) {
		return nil, errors.New("no etcd")
	}
	if err := Run(t.Context(), r.rows, r.o); err == nil || !strings.Contains(err.Error(), "no etcd") {
		t.Error(err)
	}
}
