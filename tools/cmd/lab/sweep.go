// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
	"holdfast/tools/record/sweeps"
)

// sweepCmd runs labs while their components are killed.
func sweepCmd() *cobra.Command {
	o := sweeps.Options{}
	var profile string
	var variants []string
	c := &cobra.Command{
		Use: "sweep [NAME...]", Short: "Run labs in which a component is killed at a random point: verdicts must be right or inconclusive, never wrong",
		Long: `Run labs in which a component is killed (kill -9) at a random point and then restarts. Without
a name these are the labs of make test. Each lab first runs without a kill, in each variant, which
shows its components and how long it takes. Then it runs once for each seed.

Each history is judged again. At the end, or after an interruption, a table shows each run.
Exit status 1: a verdict is wrong, more than 1 in 20 are inconclusive, or a saved history gives
another verdict.`,
		Example: `  lab sweep hash-collision reflector-monotonic-rv
  lab sweep unready-before-replace --profile long --seeds 10 --kill each
  lab sweep endpoints-rules --variant ours --kill kube-apiserver`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			root, _, known, err := checkout(c)
			if err != nil {
				return err
			}
			o.Root, o.Out, o.Profile = root, c.OutOrStdout(), labkit.Profile(profile)
			switch {
			case o.Profile != labkit.Short && o.Profile != labkit.Long:
				return exit.Usagef("--profile %q: want short or long", profile)
			case o.Seeds < 1:
				return exit.Usagef("--seeds %d: want 1 or more", o.Seeds)
			case o.Kills < 1:
				return exit.Usagef("--kills %d: want 1 or more", o.Kills)
			case o.AtOnce < 1:
				return exit.Usagef("--at-once %d: want 1 or more", o.AtOnce)
			}
			for _, s := range variants {
				v, err := base.ParseVariant(s)
				if err != nil {
					return err
				}
				o.Only = append(o.Only, v)
			}
			if o.Labs, err = known.Named(names); err != nil {
				return err
			}
			if len(names) == 0 {
				for _, c := range run.TestRuns(known) {
					o.Labs = append(o.Labs, c.Lab)
				}
			}
			ctx, cancel := signalled()
			defer cancel()
			rows := &sweeps.Rows{}
			err = runSweep(ctx, c, rows, o)
			if err := sweeps.Print(o.Out, rows.All()); err != nil {
				return err
			}
			if err != nil {
				return err
			}
			if faults := sweeps.Faults(rows.All()); len(faults) > 0 {
				return exit.Preconditionf("the kill tests did not pass:\n  %s", strings.Join(faults, "\n  "))
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&profile, "profile", "short", "short or long")
	f.Uint64Var(&o.Seeds, "seeds", 5, "how many seeds, beginning with 1")
	f.StringSliceVar(&variants, "variant", nil, "run only these variants")
	f.StringVar(&o.Kill, "kill", "", "kill this component (for example etcd, kubelet or node1-kubelet) instead of a random one; "+sweeps.Each+": each component in a run of its own")
	f.IntVar(&o.Kills, "kills", 1, "how many kills in each run")
	f.IntVar(&o.AtOnce, "at-once", 2, "how many labs run side by side")
	return c
}

func runSweep(ctx context.Context, c *cobra.Command, rows *sweeps.Rows, o sweeps.Options) error {
	var needs []labkit.Binary
	for _, l := range o.Labs {
		only := slices.DeleteFunc(l.Runs(), func(v labkit.Variant) bool { return len(o.Only) > 0 && !slices.Contains(o.Only, v) })
		if len(only) == 0 {
			continue
		}
		of, err := run.NeedsOf([]*labkit.Lab{l}, o.Profile, only)
		if err != nil {
			return err
		}
		needs = append(needs, of...)
	}
	slices.SortFunc(needs, func(a, b labkit.Binary) int { return strings.Compare(a.String(), b.String()) })
	if err := build(ctx, c, slices.Compact(needs), nil); err != nil {
		return err
	}
	if err := buildChanged(ctx, c, o.Labs, o.Profile); err != nil {
		return err
	}
	return sweeps.Run(ctx, rows, o)
}
