// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	err := Until(context.Background(), "rain", 250*time.Millisecond, func(context.Context) (bool, error) { return false, errors.New("sunny") })
	if err == nil || err.Error() != "rain: not within 250ms; last: sunny" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no patience"))
	err = Until(ctx, "rain", time.Hour, func(context.Context) (bool, error) { return false, nil })
	if err == nil || err.Error() != "waiting for rain: no patience" {
		t.Errorf("got %v", err)
	}
	n := 0
	if err := Until(context.Background(), "rain", 5*time.Second, func(context.Context) (bool, error) { n++; return n == 3, nil }); err != nil {
		t.Error(err)
	}
}

func TestAtLeast(t *testing.T) {
	if ok, err := AtLeast(2, 2); !ok || err != nil {
		t.Errorf("2 of 2: %v, %v", ok, err)
	}
	if ok, err := AtLeast(1, 2); ok || err == nil || err.Error() != "1 of 2 so far" {
		t.Errorf("1 of 2: %v, %v", ok, err)
	}
}

func TestPause(t *testing.T) {
	begin := time.Now()
	if err := Pause(context.Background(), 30*time.Millisecond); err != nil || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no patience"))
	if err := Pause(ctx, time.Hour); err == nil || err.Error() != "no patience" {
		t.Errorf("got %v", err)
	}
}
