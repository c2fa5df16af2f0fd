// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// tries is how often a lab that cannot tell is run at most.
const tries = 3

// Options say how Run runs cells.
type Options struct {
	Root   string
	Seed   uint64
	AtOnce int
	Out    io.Writer
	// Build brings the binaries of cells up to date, and Clean removes those of a
	// variant that no cell needs any more.
	Build func(context.Context, []labkit.Binary) error
	Clean func(labkit.Variant) error
	// Lab runs one cell, nil for run.Labs.
	Lab func(context.Context, Cell, io.Writer) ([]labkit.Outcome, error)
}

func (o Options) lab(ctx context.Context, c Cell, log io.Writer) ([]labkit.Outcome, error) {
	return run.Labs(ctx, []*labkit.Lab{c.Lab}, run.Options{Profile: labkit.Short, Seed: o.Seed, Only: []labkit.Variant{c.Variant}, Root: o.Root, Out: log})
}

// until runs a cell until it can tell, tries times at most; each try is in log.
func (o Options) until(ctx context.Context, c Cell, log io.Writer) (outs []labkit.Outcome, err error) {
	for n := 1; n <= tries; n++ {
		outs, err = o.Lab(ctx, c, log)
		unsure := slices.ContainsFunc(outs, func(out labkit.Outcome) bool { return out.Verdict == labkit.Inconclusive })
		if !unsure || ctx.Err() != nil {
			if n > 1 && err == nil {
				fmt.Fprintf(log, "flaky: lab %s (%s) answered when it ran for the %d. time\n", c.Lab.Name, c.Variant, n)
			}
			break
		}
	}
	return outs, err
}

// Run runs the cells, variant by variant, and returns what they answered, also beside an error. A
// variant's binaries are built while the last labs of the one before run; those of a variant
// without a fix are removed after its last lab. Answers that are not as expected are no error
// here.
func Run(ctx context.Context, cells []Cell, o Options) ([]labkit.Outcome, error) {
	var packages []string
	var variants []labkit.Variant
	for _, c := range cells {
		packages = append(packages, c.Lab.Packages...)
		if !slices.Contains(variants, c.Variant) {
			variants = append(variants, c.Variant)
		}
	}
	if o.Lab == nil {
		o.Lab = o.lab
		// Here and not by the labs, which would do it side by side.
		if err := run.InstallPackages(ctx, append(slices.Clone(run.DebianPackages), packages...), o.Out); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	var answers []labkit.Outcome
	var cleaned error
	done, stop := 0, false
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return stop || ctx.Err() != nil
	}
	var g errgroup.Group
	g.SetLimit(o.AtOnce)
	for _, v := range variants {
		var group []Cell
		var labs []*labkit.Lab
		for _, c := range cells {
			if c.Variant == v {
				group, labs = append(group, c), append(labs, c.Lab)
			}
		}
		needs, err := run.NeedsOf(labs, labkit.Short, []labkit.Variant{v})
		if stopped() {
			break
		}
		if err == nil {
			// The last labs of the variant before are still running.
			err = o.Build(ctx, needs)
		}
		if err != nil {
			return answers, errors.Join(err, g.Wait())
		}
		left := len(group)
		for _, c := range group {
			g.Go(func() error {
				if stopped() {
					return ctx.Err()
				}
				var log bytes.Buffer
				outs, err := o.until(ctx, c, &log)
				mu.Lock()
				defer mu.Unlock()
				done++
				_, _ = o.Out.Write(log.Bytes())
				fmt.Fprintf(o.Out, "labs: %d of %d\n\n", done, len(cells))
				answers = append(answers, outs...)
				if left--; left == 0 && len(v.Minus()) > 0 {
					defer func() { cleaned = errors.Join(cleaned, o.Clean(v)) }()
				}
				if f := run.Failed(nil); err != nil && !errors.As(err, &f) {
					stop = true
					return fmt.Errorf("lab %s (%s): %w", c.Lab.Name, v, err)
				}
				return nil
			})
		}
	}
	err := g.Wait()
	return answers, errors.Join(err, cleaned, ctx.Err())
}
