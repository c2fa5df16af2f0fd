// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
	"holdfast/tools/labkit/sweep"
)

// attempts is how often a run is repeated, with another point, until its kill meets a
// component that runs; and a run without a kill until it is right.
const attempts = 3

// Options say what Run runs.
type Options struct {
	Root    string
	Labs    []*labkit.Lab
	Only    []labkit.Variant // nil: all that a lab has
	Profile labkit.Profile
	Seeds   uint64 // 1 to that
	Kill    string // a component, Each, or "" for one by chance
	Kills   int    // in each run
	AtOnce  int
	Out     io.Writer
	// Lab runs a variant, nil for run.Sweep.
	Lab func(ctx context.Context, l *labkit.Lab, v labkit.Variant, kills []sweep.Kill, o run.Options) (*run.Answer, error)
}

// Run runs all that o says, and adds each row as soon as it is there. Rows that are not right
// are no error here.
func Run(ctx context.Context, rows *Rows, o Options) error {
	var packages []string
	type job struct {
		lab     *labkit.Lab
		variant labkit.Variant
	}
	var jobs []job
	for _, l := range o.Labs {
		packages = append(packages, l.Packages...)
		for _, v := range l.Runs() {
			if len(o.Only) == 0 || slices.Contains(o.Only, v) {
				jobs = append(jobs, job{l, v})
			}
		}
	}
	if o.Lab == nil {
		o.Lab = func(ctx context.Context, l *labkit.Lab, v labkit.Variant, kills []sweep.Kill, ro run.Options) (*run.Answer, error) {
			return run.Sweep(ctx, o.Root, l, v, kills, ro)
		}
		// Here and not by the labs, which would do it side by side.
		if err := run.InstallPackages(ctx, append(slices.Clone(run.DebianPackages), packages...), o.Out); err != nil {
			return err
		}
	}
	o.Out = &locked{w: o.Out}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.AtOnce)
	for _, j := range jobs {
		g.Go(func() error { return o.variant(ctx, rows, j.lab, j.variant) })
	}
	return g.Wait()
}

// locked writes whole texts of several goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// variant runs a variant of a lab, first without a kill.
func (o Options) variant(ctx context.Context, rows *Rows, l *labkit.Lab, v labkit.Variant) error {
	var plain *Row
	for n := 1; n <= attempts && (plain == nil || plain.State() != Right); n++ {
		a, err := o.one(ctx, l, v, 1, nil)
		if err != nil {
			return err
		}
		plain = &Row{Answer: *a, Attempts: n}
		rows.Put(plain)
	}
	if plain.State() != Right {
		return nil // Faults has it
	}
	for seed := uint64(1); seed <= o.Seeds; seed++ {
		kinds := []string{o.Kill}
		if o.Kill == Each {
			kinds = Kinds(plain)
		}
		for _, kind := range kinds {
			if err := o.sweep(ctx, rows, plain, l, seed, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kinds are the components that a run had, each once, in their order.
func Kinds(plain *Row) []string {
	var kinds []string
	for _, s := range plain.Report.Seen {
		if !slices.Contains(kinds, s.Component) {
			kinds = append(kinds, s.Component)
		}
	}
	return kinds
}

// sweep runs the row of a seed and a kind of component: plain's lab and variant, with kills.
func (o Options) sweep(ctx context.Context, rows *Rows, plain *Row, l *labkit.Lab, seed uint64, kind string) error {
	name := fmt.Sprintf("%s (%s)", l.Name, plain.Variant)
	for n := 1; n <= attempts; n++ {
		kills := sweep.Plan(sweep.Chance{Of: name, Seed: seed, Attempt: n}, o.Kills, kind, plain.Report.Seen, plain.Report.Window)
		if len(kills) == 0 {
			return nil // it has no such component
		}
		a, err := o.one(ctx, l, plain.Variant, seed, kills)
		if err != nil {
			return err
		}
		r := &Row{Answer: *a, Kill: kind, Kills: o.Kills, Attempts: n}
		rows.Put(r)
		fmt.Fprintf(o.Out, "sweep: %s seed %d: %s: killed %s\n\n", name, seed, r.State(), r.Killed())
		if r.State() != NotMet {
			return nil
		}
	}
	return nil
}

// one runs a lab, and prints what it prints as a whole.
func (o Options) one(ctx context.Context, l *labkit.Lab, v labkit.Variant, seed uint64, kills []sweep.Kill) (*run.Answer, error) {
	var log bytes.Buffer
	a, err := o.Lab(ctx, l, v, kills, run.Options{Profile: o.Profile, Seed: seed, Root: o.Root, Out: &log})
	_, _ = o.Out.Write(log.Bytes())
	if err != nil {
		return nil, fmt.Errorf("lab %s (%s): %w", l.Name, v, err)
	}
	return a, nil
}
