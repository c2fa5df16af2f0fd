// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/verify/parts"
)

func testCommand(c *common) *cobra.Command {
	var only []string
	var long bool
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Run what make test runs beside the labs: rules, unit tests, upstream's tests of touched packages",
		Args:  exit.NoArgs,
		Example: `  holdfast test
  holdfast test --part rules`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			all, err := parts.All(b, long)
			if err != nil {
				return err
			}
			var names []string
			for _, p := range all {
				names = append(names, p.Name)
			}
			for _, n := range only {
				if !slices.Contains(names, n) {
					return exit.Usagef("no part %q: they are %s", n, strings.Join(names, ", "))
				}
			}
			if len(only) > 0 {
				all = slices.DeleteFunc(all, func(p parts.Part) bool { return !slices.Contains(only, p.Name) })
			}
			if !parts.Run(cmd.Context(), os.Stdout, all) {
				return exit.Preconditionf("tests failed")
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&only, "part", nil, "run these parts only (comma separated)")
	cmd.Flags().BoolVar(&long, "all", false, "what make test-all runs: integration suites, hash oracle and flags too, and ours without each fix compiled")
	return cmd
}

func minusOneCommand(c *common) *cobra.Command {
	var how string
	cmd := &cobra.Command{
		Use:   "minus-one [FIX...]",
		Short: "Check that our variant works without each fix; without names each fix of the product",
		RunE: func(cmd *cobra.Command, names []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			if how != parts.Applies && how != parts.Compile && how != parts.Build {
				return exit.Usagef("--how %q: it is %s, %s or %s", how, parts.Applies, parts.Compile, parts.Build)
			}
			n, err := parts.MinusOne(cmd.Context(), b, how, names...)
			if err == nil {
				fmt.Printf("%s can do without each of %d fixes (%s)\n", b.Name, n.Passed, how)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&how, "how", parts.Applies, "applies: the patches that are left apply; compile: also compile the touched packages and their tests; build: also build the binaries")
	return cmd
}

func upstreamTestsCommand(c *common) *cobra.Command {
	var set string
	var suites []string
	cmd := &cobra.Command{
		Use:   "upstream-tests",
		Short: "Run upstream's own tests in both trees and compare what fails",
		Args:  exit.NoArgs,
		Example: `  holdfast upstream-tests --set all
  holdfast upstream-tests --set integration --suite deployment,daemonset`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			if !slices.Contains([]string{parts.Touched, parts.Doubtful, parts.Linked, parts.Integration, parts.Patched}, set) {
				return exit.Usagef("--set %q: it is %s, %s, %s, %s or %s", set, parts.Touched, parts.Doubtful, parts.Linked, parts.Integration, parts.Patched)
			}
			if len(suites) > 0 && set != parts.Integration {
				return exit.Usagef("--suite is for --set %s", parts.Integration)
			}
			if err := b.HasVariant(base.Ours); err != nil {
				return err
			}
			_, err = parts.UpstreamTests(cmd.Context(), b, set, suites...)
			return err
		},
	}
	cmd.Flags().StringVar(&set, "set", parts.Touched, "touched (by overlay or series), doubtful (the same, but stock tests only where ours leaves a doubt), all (that the binaries link), integration (test/integration, with an etcd) or integration-patched (the suites of the controllers that we patch)")
	cmd.Flags().StringSliceVar(&suites, "suite", nil, "of the integration suites only these, by their folders")
	return cmd
}
