// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
)

func TestChangedFor(t *testing.T) {
	for _, k := range changedKubelets {
		if _, err := labkit.Find(k.lab); err != nil {
			t.Errorf("%s: %v", k.build, err)
		}
	}
	both := []string{"cluster-smoke", "endpoints-rules-queued", "dropin-cluster"}
	for _, x := range []struct {
		labs    []string
		profile labkit.Profile
		want    []string
	}{
		{both, labkit.Long, []string{"mutant", "queued"}},
		{both, labkit.Short, []string{"queued"}},
		{[]string{"cluster-smoke"}, labkit.Long, nil},
	} {
		if got := changedFor(x.labs, x.profile); !slices.Equal(got, x.want) {
			t.Errorf("%v, %s: built %v, want %v", x.labs, x.profile, got, x.want)
		}
	}
}
