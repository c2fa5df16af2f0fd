// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"testing"
	"time"
)

func at(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestBroken(t *testing.T) {
	up := func(s float64, pods ...string) update { return update{at(s), pods} }
	gone := map[string]time.Duration{"a": at(1), "b": at(6)}
	for _, c := range []struct {
		name            string
		updates         []update
		fixed, trailing string
	}{
		{"nothing changes, so nothing is switched on", nil, "[]", "[]"},
		{"a leaves, b is still ready", []update{up(1, "b")}, "[b]", "[b]"},
		{"both leave first", []update{up(0.5), up(4, "a"), up(7, "a", "b")}, "[]", "[]"},
		{"b leaves before the window ends", []update{up(1, "b"), up(2.5), up(8, "a", "b")}, "[]", "[]"},
		{"b leaves after the window, but updates go on", []update{up(1, "b"), up(2.5, "b"), up(3.5), up(8, "a", "b")}, "[b]", "[]"},
		{"on, off and on again", []update{up(1, "b"), up(5), up(9, "a", "b")}, "[b]", "[b]"},
	} {
		if got := fmt.Sprint(broken(c.updates, fixed, gone)); got != c.fixed {
			t.Errorf("%s, fixed: %s, want %s", c.name, got, c.fixed)
		}
		if got := fmt.Sprint(broken(c.updates, trailing, gone)); got != c.trailing {
			t.Errorf("%s, trailing: %s, want %s", c.name, got, c.trailing)
		}
	}
}
