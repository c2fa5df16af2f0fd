// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs"
)

func TestChangedFor(t *testing.T) {
	of := func(names ...string) []*labkit.Lab {
		var ls []*labkit.Lab
		for _, n := range names {
			ls = append(ls, judgetest.Lab(t, labs.All(), n))
		}
		return ls
	}
	for _, k := range changedKubelets {
		of(k.lab) // there is such a lab
	}
	both := of("cluster-smoke", "endpoints-rules-queued", "dropin-cluster")
	for _, x := range []struct {
		labs    []*labkit.Lab
		profile labkit.Profile
		want    []string
	}{
		{both, labkit.Long, []string{"mutant", "queued"}},
		{both, labkit.Short, []string{"queued"}},
		{of("cluster-smoke"), labkit.Long, nil},
	} {
		if got := changedFor(x.labs, x.profile); !slices.Equal(got, x.want) {
			t.Errorf("%v, %s: built %v, want %v", x.labs, x.profile, got, x.want)
		}
	}
}
