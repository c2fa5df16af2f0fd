// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"holdfast/tools/labkit"
)

func TestPlanIsSeeded(t *testing.T) {
	plan := func(seed uint64) []step { return makePlan(rand.New(rand.NewPCG(seed, 0)), labkit.Long) }
	if !reflect.DeepEqual(plan(7), plan(7)) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(plan(7), plan(8)) {
		t.Error("plans of two seeds are the same")
	}
	p := plan(7)
	if n := kills(labkit.Long) + 2*len(nodeNames); len(p) != n {
		t.Errorf("%d steps, want %d", len(p), n)
	}
	for i, s := range p {
		if (i >= len(p)-len(nodeNames)) != (s.to == old) {
			t.Errorf("step %d: %v", i, s)
		}
	}
}
