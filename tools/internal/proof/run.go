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

// Options say how Run runs cells.
type Options struct {
	Root   string
	AtOnce int
	Out    io.Writer
	// Build brings the binaries of cells up to date, and Clean removes those of a
	// variant that no cell needs any more.
	Build func(context.Context, []labkit.Binary) error
	Clean func(labkit.Variant) error
	// Lab runs one cell, nil for run.Labs.
	Lab func(context.Context, Cell, io.Writer) ([]run.Outcome, error)
}

func (o Options) lab(ctx context.Context, c Cell, log io.Writer) ([]run.Outcome, error) {
	return run.Labs(ctx, []string{c.Lab}, run.Options{Profile: c.Profile, Seed: c.Seed, Only: []labkit.Variant{c.Variant}, Root: o.Root, Out: log})
}

// Run runs the cells, variant by variant, and stores each result as soon as it is
// there, so that it can be cut off and continued. A variant's binaries are built while the
// last labs of the one before run, and removed after its last lab. Answers that are not as expected
// are no error here; Page and Faults show them.
func Run(ctx context.Context, cells []Cell, keys map[Cell]string, o Options) error {
	var packages []string
	var variants []labkit.Variant
	for _, c := range cells {
		l, err := labkit.Find(c.Lab)
		if err != nil {
			return err
		}
		packages = append(packages, l.Packages...)
		if !slices.Contains(variants, c.Variant) {
			variants = append(variants, c.Variant)
		}
	}
	if o.Lab == nil {
		o.Lab = o.lab
		// Here and not by the labs, which would do it side by side.
		if err := run.InstallPackages(ctx, append(slices.Clone(run.DebianPackages), packages...), o.Out); err != nil {
			return err
		}
	}
	store := Store{Root: o.Root}
	var mu sync.Mutex
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
		var names []string
		for _, c := range cells {
			if c.Variant == v {
				group, names = append(group, c), append(names, c.Lab)
			}
		}
		needs, err := run.NeedsOf(names, group[0].Profile, []labkit.Variant{v})
		if stopped() {
			break
		}
		if err == nil {
			// The last labs of the variant before are still running.
			err = o.Build(ctx, needs)
		}
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		left := len(group)
		for _, c := range group {
			g.Go(func() error {
				if stopped() {
					return ctx.Err()
				}
				var log bytes.Buffer
				outs, err := o.Lab(ctx, c, &log)
				mu.Lock()
				defer mu.Unlock()
				done++
				_, _ = o.Out.Write(log.Bytes())
				fmt.Fprintf(o.Out, "proof: %d of %d\n\n", done, len(cells))
				if left--; left == 0 && len(v.Minus()) > 0 {
					defer func() { cleaned = errors.Join(cleaned, o.Clean(v)) }()
				}
				if f := (*run.Failed)(nil); err != nil && !errors.As(err, &f) {
					stop = true
					return fmt.Errorf("lab %s (%s): %w", c.Lab, v, err)
				}
				for _, out := range outs {
					if err := store.Save(c, &Result{Key: keys[c], Outcome: out}); err != nil {
						stop = true
						return err
					}
				}
				return nil
			})
		}
	}
	err := g.Wait()
	return errors.Join(err, cleaned, ctx.Err())
}
