// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestExpand: a name is a lab's, else a room's, else left for Find.
func TestExpand(t *testing.T) {
	saved := registry
	defer func() { registry = saved }()
	registry = map[string]*Lab{}
	for _, l := range []Lab{{Name: "rv"}, {Name: "rv-old", Folder: "rv"}, {Name: "hash-a", Folder: "hash"}, {Name: "hash-b", Folder: "hash"}, {Name: "hash-v1.2.0"}, {Name: "fine", Folder: "checks/all"}} {
		l.Summary, l.Plan = "s", func(Profile) []string { return nil }
		l.Run = func(context.Context, *Env) (Result, error) { return Result{}, nil }
		Register(l)
	}
	for _, c := range []struct{ in, want []string }{
		{[]string{"rv"}, []string{"rv"}},
		{[]string{"hash"}, []string{"hash-a", "hash-b"}},
		{[]string{"all", "hash-v1.2.0"}, []string{"fine", "hash-v1.2.0"}},
		{[]string{"rv-old", "nosuch"}, []string{"rv-old", "nosuch"}},
	} {
		if got := Expand(c.in); !slices.Equal(got, c.want) {
			t.Errorf("Expand(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

// TestFailed: what is not as expected is named, and told apart from what could
// not tell.
func TestFailed(t *testing.T) {
	f := &Failed{}
	for _, o := range []Outcome{
		{Variant: Stock, Expected: Reproduced, Verdict: Reproduced},
		{Variant: Stock, Expected: Reproduced, Verdict: Inconclusive},
		{Variant: Ours, Expected: Absent, Verdict: Reproduced},
		{Variant: GateOff, Expected: Reproduced, Verdict: Absent},
	} {
		f.add("x", o)
	}
	if got, want := strings.Join(f.Labs, ", "), "x (stock), x (ours), x (ours-gate-off)"; got != want {
		t.Errorf("Labs: %s, want %s", got, want)
	}
	if got, want := strings.Join(f.Wrong, ", "), "x (ours), x (ours-gate-off)"; got != want {
		t.Errorf("Wrong: %s, want %s", got, want)
	}
}
