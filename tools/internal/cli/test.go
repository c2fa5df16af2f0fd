// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/ci"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/parts"
)

func testCommand(c *common) *cobra.Command {
	var only []string
	var counts string
	var o ci.Options
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Run what CI runs: rules, unit tests, upstream's tests of touched packages, labs",
		Args:  exit.NoArgs,
		Example: `  holdfast test
  holdfast test --part rules`,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			all, err := ci.Parts(b, o)
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
			run := parts.Select(all, only)
			if slices.ContainsFunc(run, func(p parts.Part) bool { return p.Name == "labs" }) {
				// Before the builds, which take long.
				if err := ci.NotMapped(); err != nil {
					return err
				}
			}
			passed := false
			if counts != "" {
				passed, err = one(run, counts)
			} else {
				passed = parts.Run(os.Stdout, run, aside(b, o))
			}
			if err != nil {
				return err
			}
			if !passed {
				return exit.Preconditionf("tests failed")
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&only, "part", nil, "run these parts only (comma separated); labs brings the builds that it needs")
	cmd.Flags().BoolVar(&o.All, "all", false, "what make test-all runs: every lab in every variant, integration suites, hash oracle and flags too")
	cmd.Flags().StringVar(&counts, "counts", "", "run one part and write what it counted to this file")
	cmd.Flags().MarkHidden("counts") // for aside
	return cmd
}

// aside runs a part as a process of the lowest priority, this program again: what compiles
// beside the labs must not make them late.
func aside(b *base.Base, o ci.Options) parts.Aside {
	return func(p parts.Part) ([]byte, parts.Count, error) {
		var n parts.Count
		self, err := os.Executable()
		if err != nil {
			return nil, n, err
		}
		dir, err := os.MkdirTemp("", "holdfast-part-")
		if err != nil {
			return nil, n, err
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "counts.json")
		args := []string{"-n", "19", self, "test", "--root", b.Root, "--base", b.Name, "--part", p.Name, "--counts", file}
		if o.All {
			args = append(args, "--all")
		}
		out, runErr := exec.Command("nice", args...).CombinedOutput()
		raw, err := os.ReadFile(file)
		if err != nil {
			return out, n, fmt.Errorf("%v, and no counts: %w", runErr, err)
		}
		return out, n, json.Unmarshal(raw, &n)
	}
}

// one runs the only part of run and writes its counts to a file, for aside.
func one(run []parts.Part, file string) (passed bool, err error) {
	if len(run) != 1 {
		return false, exit.Usagef("--counts wants one --part, and there are %d", len(run))
	}
	n := parts.One(os.Stdout, run[0])
	raw, err := json.Marshal(n)
	if err != nil {
		return false, err
	}
	return n.Failed == 0, os.WriteFile(file, raw, 0o644)
}

func binariesCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "binaries",
		Short: "Build the product and every binary that make test may run",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			_, err = ci.Binaries(b, true)
			return err
		},
	}
}

func minusOneCommand(c *common) *cobra.Command {
	var how string
	cmd := &cobra.Command{
		Use:   "minus-one [FIX...]",
		Short: "Check that our variant works without each fix; without names each fix of the product",
		RunE: func(_ *cobra.Command, names []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			if how != ci.Fits && how != ci.Compile && how != ci.Build {
				return exit.Usagef("--how %q: it is %s, %s or %s", how, ci.Fits, ci.Compile, ci.Build)
			}
			n, err := ci.MinusOne(b, how, names...)
			if err == nil {
				fmt.Printf("%s can do without each of %d fixes (%s)\n", b.Name, n.Passed, how)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&how, "how", ci.Fits, "fits: patches apply and no source uses what is removed; compile: also compile the touched packages and their tests; build: also build the binaries")
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
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			if !slices.Contains([]string{ci.Touched, ci.Doubtful, ci.All, ci.Integration, ci.Patched}, set) {
				return exit.Usagef("--set %q: it is %s, %s, %s, %s or %s", set, ci.Touched, ci.Doubtful, ci.All, ci.Integration, ci.Patched)
			}
			if len(suites) > 0 && set != ci.Integration {
				return exit.Usagef("--suite is for --set %s", ci.Integration)
			}
			if err := b.HasVariant(base.Ours); err != nil {
				return err
			}
			_, err = ci.UpstreamTests(b, set, suites...)
			return err
		},
	}
	cmd.Flags().StringVar(&set, "set", ci.Touched, "touched (by overlay or series), doubtful (the same, but stock tests only where ours leaves a doubt), all (that the binaries link), integration (test/integration, with an etcd) or integration-patched (the suites of the controllers that we patch)")
	cmd.Flags().StringSliceVar(&suites, "suite", nil, "of the integration suites only these, by their folders")
	return cmd
}
