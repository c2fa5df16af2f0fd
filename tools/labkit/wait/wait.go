// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wait has the one way in which labs and kit wait: poll, bounded, with an
// error that says for what.
package wait

import (
	"context"
	"fmt"
	"time"
)

// interval is the pause between two questions.
const interval = 100 * time.Millisecond

// Until polls f every 100 ms until it answers true. An error of f is remembered,
// not fatal; the error at the end names what was waited for, the bound and the last
// error.
func Until(ctx context.Context, what string, bound time.Duration, f func(context.Context) (bool, error)) error {
	return Every(ctx, what, interval, bound, f)
}

// Every is Until with another pause between two questions, for one that costs much.
func Every(ctx context.Context, what string, interval, bound time.Duration, f func(context.Context) (bool, error)) error {
	c, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var last error
	for {
		ok, err := f(c)
		if ok && err == nil {
			return nil
		}
		if err != nil && c.Err() == nil {
			last = err
		}
		select {
		case <-c.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
			}
			if last != nil {
				return fmt.Errorf("%s: not within %v; last: %w", what, bound, last)
			}
			return fmt.Errorf("%s: not within %v", what, bound)
		case <-time.After(interval):
		}
	}
}

// AtLeast is an answer for Until: whether n things of those that are wanted are there.
func AtLeast(n, want int) (bool, error) {
	if n < want {
		return false, fmt.Errorf("%d of %d so far", n, want)
	}
	return true, nil
}

// Pause lets time pass that something takes in a cluster; it is no oracle.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
