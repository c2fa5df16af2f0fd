// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prose

import (
	"slices"
	"testing"
)

func TestLines(t *testing.T) {
	for text, want := range map[string][]string{
		"":                      nil,
		" a\n b ":               {"a b"},
		"1234 678 0123":         {"1234 678", "0123"},
		"123456789012 4":        {"123456789012", "4"},
		"äöüä öüä x":            {"äöüä öüä x"},
		"12345 7890 1 3 5 7 90": {"12345 7890", "1 3 5 7 90"},
	} {
		if got := Lines(text, 10); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
