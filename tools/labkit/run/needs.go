// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/tools/labkit"
)

// NeedsOfChosen is NeedsOf for labs that do not all run in the same variants.
func NeedsOfChosen(all []Chosen, p labkit.Profile) ([]labkit.Binary, error) {
	var out []labkit.Binary
	for _, c := range all {
		needs, err := NeedsOf([]*labkit.Lab{c.Lab}, p, c.Variants)
		if err != nil {
			return nil, err
		}
		out = append(out, needs...)
	}
	slices.SortFunc(out, func(a, b labkit.Binary) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(out), nil
}

// NeedsOf lists the binaries that labs run in a profile and the given variants
// (nil: all of a lab's), each once, sorted. A variant that a lab cannot be run in
// is an error.
func NeedsOf(labs []*labkit.Lab, p labkit.Profile, only []labkit.Variant) ([]labkit.Binary, error) {
	seen := map[labkit.Binary]bool{}
	for _, l := range labs {
		vs := only
		if len(vs) == 0 {
			vs = l.Runs()
		}
		for _, v := range vs {
			if l.Expected(v) == "" {
				return nil, fmt.Errorf("lab %s has no variant %q: it has %s and \"%s -FIX\"", l.Name, v, words(l.Runs()), labkit.Ours)
			}
			for _, b := range l.NeedsIn(p) {
				seen[b.For(v)] = true
			}
		}
	}
	out := make([]labkit.Binary, 0, len(seen))
	for b := range seen {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b labkit.Binary) int { return cmp.Compare(a.String(), b.String()) })
	return out, nil
}

// UpNeeds are the binaries of a base that Up runs for v.
func UpNeeds(base string, v labkit.Variant) []labkit.Binary {
	var out []labkit.Binary
	for _, b := range upNeeds(base) {
		out = append(out, b.For(v))
	}
	return out
}
