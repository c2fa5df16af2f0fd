// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/sweep"
)

// Sweep runs one variant of a lab as a kill test, which does these kills; without any it only
// looks for how long the run is and which components it has. The history is judged again
// before it is removed. The outcome is not kept as one of
// the lab.
func Sweep(ctx context.Context, root string, l *labkit.Lab, v labkit.Variant, kills []sweep.Kill, o Options) (*Answer, error) {
	bins, err := labkit.NewBinaries(root, o.Bins)
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	needs, err := NeedsOf([]*labkit.Lab{l}, o.Profile, []labkit.Variant{v})
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	if err := prepare(ctx, root, bins, needs, l.Packages, o.Out); err != nil {
		return nil, err
	}
	if l.Kernel {
		if err := fetchKernel(ctx, root, o.Out); err != nil {
			return nil, err
		}
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Out, "sweep of lab %s (%s), profile %s, seed %d", l.Name, v, o.Profile, o.Seed)
	for _, k := range kills {
		fmt.Fprintf(o.Out, "; kill -9 of %s", k)
	}
	fmt.Fprintln(o.Out)
	dir := filepath.Join(root, "_output", "lab", l.Name, fmt.Sprintf("%s-sweep-seed%d-%s", time.Now().UTC().Format("20060102-150405"), o.Seed, id))
	timeout := o.Timeout
	if timeout == 0 {
		timeout = l.Bound(o.Profile)
	}
	req := request{Lab: l.Name, Gates: l.Gates(), Fixes: l.Fixes(), ID: id, Dir: filepath.Join(dir, v.Dir()), Root: root, Variant: v,
		Profile: o.Profile, Seed: o.Seed, Keep: o.Keep, Timeout: timeout, Bins: bins, Sweep: &sweepPlan{kills}}
	a := runVariantOf(ctx, l, req, commitOf(root, len(bins.Rules) > 0), o.Out)
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), os.RemoveAll(dir))
	}
	a.Again = labkit.Inconclusive
	if h, err := labkit.ReadHistory(filepath.Join(req.Dir, history.File)); err == nil {
		a.Again = l.Judge(h).Verdict
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := tidy(&a.Outcome, req); err != nil {
		return nil, err
	}
	_ = os.Remove(dir) // if it is empty
	printTable(o.Out, l, []labkit.Outcome{a.Outcome})
	return &a, nil
}
