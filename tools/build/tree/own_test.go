// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"
	"slices"
	"testing"
)

// TestWithSiblings: a package of upstream's that has none of our files is told
// from one that was ours alone.
func TestWithSiblings(t *testing.T) {
	want := map[string]source{}
	for _, f := range []string{"both/upstream.go", "both/upstream_test.go", "touched/a.go", "touched/b.go", "text/x.txt"} {
		want[f] = fromBytes([]byte(f))
	}
	out := map[string][]byte{"touched/a.go": nil}
	if err := withSiblings(out, []string{"both/ours.go", "touched/ours.go", "ours/ours.go", "text/ours.go"}, want); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(out)); !slices.Equal(got, []string{"both/upstream.go", "touched/a.go"}) {
		t.Errorf("got %q", got)
	}
}
