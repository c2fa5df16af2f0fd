// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"testing"
	"time"
)

func TestBroken(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	up := func(s float64, pods ...string) update {
		m := map[string]bool{}
		for _, p := range pods {
			m[p] = true
		}
		return update{at(s), m}
	}
	gone := map[string]time.Time{"a": at(1), "b": at(6)}
	for _, c := range []struct {
		name            string
		updates         []update
		fixed, trailing string
	}{
		{"nothing changes, so nothing is switched on", []update{up(-5, "a", "b")}, "[]", "[]"},
		{"a leaves, b is still ready", []update{up(-5, "a", "b"), up(1, "b")}, "[b]", "[b]"},
		{"both leave first", []update{up(-5, "a", "b"), up(0.5), up(4, "a"), up(7, "a", "b")}, "[]", "[]"},
		{"b leaves before the window ends", []update{up(-5, "a", "b"), up(1, "b"), up(2.5), up(8, "a", "b")}, "[]", "[]"},
		{"b leaves after the window, but updates go on", []update{up(-5, "a", "b"), up(1, "b"), up(2.5, "b"), up(3.5), up(8, "a", "b")}, "[b]", "[]"},
		{"on, off and on again", []update{up(-5, "a", "b"), up(1, "b"), up(5), up(9, "a", "b")}, "[b]", "[b]"},
	} {
		if got := fmt.Sprint(broken(c.updates, start, fixed, gone)); got != c.fixed {
			t.Errorf("%s, fixed: %s, want %s", c.name, got, c.fixed)
		}
		if got := fmt.Sprint(broken(c.updates, start, trailing, gone)); got != c.trailing {
			t.Errorf("%s, trailing: %s, want %s", c.name, got, c.trailing)
		}
	}
}
