// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestRank: the table that books of statistics print for the median's interval.
func TestRank(t *testing.T) {
	for n, want := range map[int]int{6: 0, 8: 0, 9: 1, 10: 1, 15: 3, 20: 5, 25: 7, 30: 9} {
		if got := rank(n); got != want {
			t.Errorf("%d values: from the one with index %d, want %d", n, got, want)
		}
	}
}
