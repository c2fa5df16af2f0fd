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
