// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/dropin"
	"holdfast/tools/labkit"
)

// changedKubelets are the labs that also run a kubelet of ours with changes, which is no variant
// and so in no lab's Needs.
var changedKubelets = []struct {
	lab      string
	build    string // changed kubelet, a key of changedBuilds
	longOnly bool
}{
	{lab: "dropin-cluster", build: "mutant", longOnly: true},
	{lab: "endpoints-rules-queued", build: "queued"},
}

var changedBuilds = map[string]func(context.Context, string) error{"mutant": dropin.BuildMutant, "queued": dropin.BuildQueued}

// changedFor says which of changedBuilds must run for these labs.
func changedFor(labs []*labkit.Lab, profile labkit.Profile) []string {
	var builds []string
	for _, k := range changedKubelets {
		if labkit.Labs(labs).Find(k.lab) != nil && (profile == labkit.Long || !k.longOnly) {
			builds = append(builds, k.build)
		}
	}
	return builds
}

// buildChanged brings the changed kubelets that these labs run up to date.
func buildChanged(ctx context.Context, c *cobra.Command, labs []*labkit.Lab, profile labkit.Profile) error {
	root, err := base.FindRoot(rootFlag(c))
	if err != nil {
		return err
	}
	for _, b := range changedFor(labs, profile) {
		if err := changedBuilds[b](ctx, root); err != nil {
			return err
		}
	}
	return nil
}
