// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A third lab begins only where the computer had time left for a while, and never more than manyLabs.
func TestLanes(t *testing.T) {
	for name, c := range map[string]struct {
		share float64 // of the time that is idle
		err   error
		want  int // labs after ten minutes
	}{
		"idle":    {0.7, nil, manyLabs},
		"busy":    {0.4, nil, 2},
		"unknown": {0.9, errors.New("no /proc"), 2},
	} {
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := begin
		l := newLanes()
		l.idle = func() (float64, float64, error) {
			all := 2 * now.Sub(begin).Seconds()
			return c.share * all, all, c.err
		}
		var starts []time.Duration
		for ; now.Before(begin.Add(10 * time.Minute)); now = now.Add(time.Second) {
			if l.admit(now) {
				starts = append(starts, now.Sub(begin))
			}
		}
		if len(starts) != c.want {
			t.Errorf("%s: labs began at %v, want %d", name, starts, c.want)
		}
		for i := 2; i < len(starts); i++ {
			if d := starts[i] - starts[i-1]; d < startTakes+idleOver {
				t.Errorf("%s: a lab began %v after the one before", name, d)
			}
		}
		// Where one ends another begins at once, up to two.
		for l.running >= fewLabs {
			l.leave()
		}
		if !l.admit(now) || l.running != fewLabs {
			t.Errorf("%s: %d run", name, l.running)
		}
	}
}

// A busy stretch is forgotten: a lab begins after the first one that is not.
func TestLanesAfterBusyStretch(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now, busy := begin, 5*time.Minute
	l := newLanes()
	l.idle = func() (float64, float64, error) {
		return max(0, (now.Sub(begin) - busy).Seconds()), now.Sub(begin).Seconds(), nil
	}
	l.admit(now)
	l.admit(now)
	for ; !l.admit(now); now = now.Add(time.Second) {
		if now.After(begin.Add(busy + 2*idleOver + time.Second)) {
			t.Fatalf("no lab began %v after the busy stretch", now.Sub(begin)-busy)
		}
	}
	if now.Before(begin.Add(busy)) {
		t.Errorf("a lab began after %v", now.Sub(begin))
	}
}

func TestLanesCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l := newLanes()
	l.running = manyLabs
	l.enter(ctx)
	if l.running != manyLabs+1 {
		t.Errorf("%d run", l.running)
	}
}

func TestIdleTime(t *testing.T) {
	idle, all, err := idleTime()
	if err != nil || idle <= 0 || all <= idle {
		t.Errorf("%v of %v, %v", idle, all, err)
	}
}
