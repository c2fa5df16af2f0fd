// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// TestLongestFirst: three variants of 2 minutes come before one of 5, and equal labs keep
// their order.
func TestLongestFirst(t *testing.T) {
	add := func(name string, minutes int, variants ...labkit.Variant) {
		labkit.Register(labkit.Lab{Name: name, Summary: "test", Variants: variants,
			Timeout: func(labkit.Profile) time.Duration { return time.Duration(minutes) * time.Minute },
			Steps: func(*labkit.Env) []labkit.Step {
				return []labkit.Step{{Text: "wait", Do: func(context.Context) error { return nil }}}
			},
			Oracle: labkit.Oracle{Text: []string{"nothing"}, Judge: func(*history.History) labkit.Result { return labkit.AbsentBecause("nothing") }}})
	}
	add("order-a", 5, labkit.Ours)
	add("order-b", 2, labkit.Stock, labkit.Ours, labkit.GateOff)
	add("order-c", 5, labkit.Ours)
	add("order-d", 30, labkit.Ours)
	names := []string{"order-a", "order-b", "order-c", "order-d"}
	if got, want := longestFirst(names), []string{"order-d", "order-b", "order-a", "order-c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
