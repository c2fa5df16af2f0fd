// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
)

// atOnce is how many labs run side by side. Each has a machine of its own, and
// most of a lab's time is spent waiting for timers of the components, so that
// more of them than cores is right.
const atOnce = 4

// retries is how often a lab that could not tell is run again, alone.
const retries = 2

// SuiteNames lists the labs of make test.
func SuiteNames() []string {
	var names []string
	for _, l := range labkit.Labs() {
		if !l.LongOnly {
			names = append(names, l.Name)
		}
	}
	return names
}

// Suite runs the labs of make test side by side and returns their outcomes.
// A lab of which no variant answered wrongly and one was inconclusive gets
// another chance alone, and is reported either way: beside others a machine may
// be too slow for it. A wrong answer stands. The error is a *Failed, or says why
// a lab could not be run.
func Suite(ctx context.Context, o Options) ([]Outcome, error) {
	if o.Out == nil {
		o.Out = os.Stdout
	}
	root, err := openCheckout(o.Root)
	if err != nil {
		return nil, err
	}
	names := SuiteNames()
	packages := slices.Clone(DebianPackages)
	for _, n := range names {
		l, err := labkit.Find(n)
		if err != nil {
			return nil, err
		}
		packages = append(packages, l.Packages...)
	}
	// Here and not by the labs, which would do it side by side.
	if err := InstallPackages(ctx, packages, o.Out); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	outcomes := map[string][]Outcome{}
	broken := map[string]error{} // labs that could not be run
	one := func(name string) {
		start := time.Now()
		var out bytes.Buffer
		own := o
		own.Out = &out
		got, err := runLabs(ctx, root, []string{name}, own)
		mu.Lock()
		defer mu.Unlock()
		_, _ = o.Out.Write(out.Bytes())
		fmt.Fprintf(o.Out, "lab %s took %.0f s\n\n", name, time.Since(start).Seconds())
		outcomes[name] = got
		delete(broken, name)
		if f := (*Failed)(nil); err != nil && !errors.As(err, &f) {
			broken[name] = err
			fmt.Fprintf(o.Out, "lab %s: %v\n", name, err)
		}
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, name := range names {
		g.Go(func() error { one(name); return nil })
	}
	_ = g.Wait() // one keeps the errors
	for range retries {
		for _, name := range names {
			if ctx.Err() == nil && again(outcomes[name]) {
				fmt.Fprintf(o.Out, "lab %s was inconclusive: again, alone\n", name)
				if one(name); !again(outcomes[name]) {
					fmt.Fprintf(o.Out, "flaky: lab %s answered only when it ran again, alone\n", name)
				}
			}
		}
	}
	var all []Outcome
	failed := &Failed{}
	var errs []error
	for _, name := range names {
		all = append(all, outcomes[name]...)
		for _, out := range outcomes[name] {
			failed.add(name, out)
		}
		if err := broken[name]; err != nil {
			errs = append(errs, fmt.Errorf("lab %s: %w", name, err))
		}
	}
	if len(failed.Labs) > 0 {
		errs = append(errs, failed)
	}
	return all, errors.Join(errs...)
}

// again reports whether a lab may run once more: it could not tell, and nothing
// that it did tell was wrong.
func again(outcomes []Outcome) bool {
	inconclusive := false
	for _, o := range outcomes {
		if o.AsExpected() {
			continue
		}
		if o.Verdict != labkit.Inconclusive {
			return false
		}
		inconclusive = true
	}
	return inconclusive
}
