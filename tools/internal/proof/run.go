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
}

// Run runs the cells, variant by variant, and stores each result as soon as it is
// there, so that it can be cut off and continued. Answers that are not as expected
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
	// Here and not by the labs, which would do it side by side.
	if err := run.InstallPackages(ctx, append(slices.Clone(run.DebianPackages), packages...), o.Out); err != nil {
		return err
	}
	store := Store{o.Root}
	var mu sync.Mutex
	done := 0
	for _, v := range variants {
		var group []Cell
		var names []string
		for _, c := range cells {
			if c.Variant == v {
				group, names = append(group, c), append(names, c.Lab)
			}
		}
		needs, err := run.NeedsOf(names, []labkit.Variant{v})
		if err != nil {
			return err
		}
		if err := o.Build(ctx, needs); err != nil {
			return err
		}
		var g errgroup.Group
		g.SetLimit(o.AtOnce)
		for _, c := range group {
			g.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				var log bytes.Buffer
				outs, err := run.Labs(ctx, []string{c.Lab}, run.Options{Profile: c.Profile, Seed: c.Seed, Only: []labkit.Variant{v}, Root: o.Root, Out: &log})
				mu.Lock()
				defer mu.Unlock()
				done++
				_, _ = o.Out.Write(log.Bytes())
				fmt.Fprintf(o.Out, "proof: %d of %d\n\n", done, len(cells))
				if f := (*run.Failed)(nil); err != nil && !errors.As(err, &f) {
					return fmt.Errorf("lab %s (%s): %w", c.Lab, v, err)
				}
				for _, out := range outs {
					if err := store.Save(c, &Result{Key: keys[c], Outcome: out}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err = g.Wait()
		if len(v.Minus()) > 0 {
			err = errors.Join(err, o.Clean(v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
