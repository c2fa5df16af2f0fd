// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"holdfast/tools/labkit"
)

// retries is how often a lab that could not tell is run again, alone.
const retries = 2

// Chosen is a lab and the variants in which it is to run.
type Chosen struct {
	Lab      *labkit.Lab
	Variants []labkit.Variant
}

// TestRuns lists the labs of make test, of all, with the variants in which it runs them.
func TestRuns(all labkit.Labs) []Chosen {
	var set []Chosen
	for _, l := range all {
		if len(l.Test) > 0 {
			set = append(set, Chosen{l, l.Test})
		}
	}
	return set
}

// PrintTestRuns says what is in the fixed short set of make test.
func PrintTestRuns(w io.Writer, all []Chosen) {
	runs := 0
	for _, c := range all {
		runs += len(c.Variants)
	}
	fmt.Fprintf(w, "labs: the fixed short set has %d runs of %d labs; make test-all runs all labs\n", runs, len(all))
	for _, c := range all {
		fmt.Fprintf(w, "labs: %s (%s)\n", c.Lab.Name, words(c.Variants))
	}
}

// Suite runs labs side by side and returns their outcomes, in their order.
// If no variant of a lab answered wrongly, those that were inconclusive get
// another chance alone, and are reported either way: beside others a machine may
// be too slow for them. A wrong answer stands. The error is a Failed, or says why
// a lab could not be run.
func Suite(ctx context.Context, chosen []Chosen, o Options) ([]labkit.Outcome, error) {
	if o.Out == nil {
		o.Out = os.Stdout
	}
	packages := slices.Clone(DebianPackages)
	bounds := map[*labkit.Lab]time.Duration{} // of all runs of a lab
	for _, c := range chosen {
		packages = append(packages, c.Lab.Packages...)
		bounds[c.Lab] = c.Lab.Bound(o.Profile) * time.Duration(len(c.Variants))
	}
	// A long lab that begins late runs alone at the end.
	order := slices.Clone(chosen)
	slices.SortStableFunc(order, func(a, b Chosen) int { return cmp.Compare(bounds[b.Lab], bounds[a.Lab]) })
	// Here and not by the labs, which would do it side by side.
	if err := InstallPackages(ctx, packages, o.Out); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	outcomes := map[*labkit.Lab][]labkit.Outcome{}
	broken := map[*labkit.Lab]error{} // labs that could not be run
	// one runs a lab, or only those variants of it.
	one := func(l *labkit.Lab, only []labkit.Variant) {
		start := time.Now()
		var out bytes.Buffer
		own := o
		own.Out, own.Only = &out, only
		got, err := Labs(ctx, []*labkit.Lab{l}, own)
		mu.Lock()
		defer mu.Unlock()
		_, _ = o.Out.Write(out.Bytes())
		cpu := 0.0
		for _, out := range got {
			cpu += out.CPUSeconds
		}
		fmt.Fprintf(o.Out, "lab %s took %.0f s, %.0f s of CPU time\n\n", l.Name, time.Since(start).Seconds(), cpu)
		outcomes[l] = repeated(outcomes[l], got)
		delete(broken, l)
		if f := Failed(nil); err != nil && !errors.As(err, &f) {
			broken[l] = err
			fmt.Fprintf(o.Out, "lab %s: %v\n", l.Name, err)
		}
	}
	var g sync.WaitGroup
	lanes := newLanes()
	for _, c := range order {
		lanes.enter(ctx)
		g.Go(func() {
			defer lanes.leave()
			one(c.Lab, c.Variants)
		})
	}
	g.Wait()
	for range retries {
		for _, c := range chosen {
			l, only := c.Lab, again(outcomes[c.Lab])
			if ctx.Err() != nil || len(only) == 0 {
				continue
			}
			fmt.Fprintf(o.Out, "lab %s (%s) was inconclusive: run it again, alone\n", l.Name, words(only))
			if one(l, only); len(again(outcomes[l])) == 0 {
				fmt.Fprintf(o.Out, "flaky: lab %s (%s) reached a verdict only when it ran again, alone\n", l.Name, words(only))
			}
		}
	}
	var all []labkit.Outcome
	var errs []error
	for _, c := range chosen {
		all = append(all, outcomes[c.Lab]...)
		if err := broken[c.Lab]; err != nil {
			errs = append(errs, fmt.Errorf("lab %s: %w", c.Lab.Name, err))
		}
	}
	return all, errors.Join(append(errs, failed(all))...)
}

// again lists the variants of a lab that may run once more: they could not tell, and
// no variant told anything wrong.
func again(outcomes []labkit.Outcome) []labkit.Variant {
	var only []labkit.Variant
	for _, o := range outcomes {
		if o.AsExpected() {
			continue
		}
		if o.Verdict != labkit.Inconclusive {
			return nil
		}
		only = append(only, o.Variant)
	}
	return only
}

// repeated is replace for outcomes of runs that repeat those of old: they keep what these
// answered.
func repeated(old, outcomes []labkit.Outcome) []labkit.Outcome {
	all := slices.Clone(outcomes)
	for i, o := range all {
		if at := slices.IndexFunc(old, func(p labkit.Outcome) bool { return p.Variant == o.Variant }); at >= 0 {
			all[i].Before = append(slices.Clone(old[at].Before), fmt.Sprintf("%s: %s", old[at].Verdict, old[at].Why))
		}
	}
	return replace(old, all)
}

// replace puts outcomes into the places of those of the same variants, or at the end.
func replace(old, outcomes []labkit.Outcome) []labkit.Outcome {
	all := slices.Clone(old)
	for _, o := range outcomes {
		if i := slices.IndexFunc(all, func(p labkit.Outcome) bool { return p.Variant == o.Variant }); i >= 0 {
			all[i] = o
		} else {
			all = append(all, o)
		}
	}
	return all
}
