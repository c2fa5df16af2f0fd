// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"holdfast/tools/internal/exit"
	"holdfast/tools/labkit"
)

// TestMayRunAgain: a lab that could not tell is run again, one that answered wrong
// is not, whatever its other variants answered.
func TestMayRunAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"inconclusive", &labkit.Failed{Labs: []string{"x (stock)"}}, true},
		{"inconclusive, wrapped", fmt.Errorf("labs: %w", &labkit.Failed{Labs: []string{"x (stock)"}}), true},
		{"wrong", &labkit.Failed{Labs: []string{"x (ours)"}, Wrong: []string{"x (ours)"}}, false},
		{"one variant inconclusive, one wrong", &labkit.Failed{Labs: []string{"x (stock)", "x (ours)"}, Wrong: []string{"x (ours)"}}, false},
		{"a precondition", errors.New("binary not built"), false},
		{"usage", exit.Usagef("no such lab"), false},
		{"cut off", fmt.Errorf("lab x: %w", context.Canceled), false},
	} {
		if got := mayRunAgain(tt.err); got != tt.want {
			t.Errorf("%s: run again is %v, want %v", tt.name, got, tt.want)
		}
	}
}
