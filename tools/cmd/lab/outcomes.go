// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// outcomesCmd prints what the last runs answered.
func outcomesCmd() *cobra.Command {
	var profile, format string
	c := &cobra.Command{
		Use: "outcomes [NAME...]", Short: "Print the last outcomes of labs, which are kept in _output/lab; without a name: of all labs",
		Example: `  lab outcomes
  lab outcomes hash-collision --format markdown`,
		RunE: func(c *cobra.Command, names []string) error {
			root, _, known, err := checkout(c)
			if err != nil {
				return err
			}
			if !slices.Contains(run.Formats, format) {
				return exit.Usagef("--format %q: want one of %s", format, strings.Join(run.Formats, ", "))
			}
			if p := labkit.Profile(profile); p != labkit.Short && p != labkit.Long {
				return exit.Usagef("--profile %q: want short or long", profile)
			}
			chosen, err := known.NamedOrAll(names)
			if err != nil {
				return err
			}
			last, err := run.LastOutcomes(root, chosen, labkit.Profile(profile))
			if err != nil {
				return err
			}
			return run.PrintOutcomes(c.OutOrStdout(), last, format)
		},
	}
	c.Flags().StringVar(&profile, "profile", "short", "short or long")
	c.Flags().StringVar(&format, "format", "text", strings.Join(run.Formats, ", "))
	return c
}
