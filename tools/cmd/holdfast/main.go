// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The holdfast command writes the source trees of the bases, builds and tests them. The
// Makefile is a thin front of it; one file has one group of subcommands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// common are the flags that most subcommands share.
type common struct {
	root, base, variant string
	minus               []string
	cmd                 *cobra.Command // the root command
}

func (c *common) load() (*base.Base, error) {
	root, err := base.FindRoot(c.root)
	if err != nil {
		return nil, err
	}
	if !c.cmd.PersistentFlags().Changed("base") {
		return base.LoadDefault(root)
	}
	return base.Load(root, c.base)
}

// loadVariant is load with what --variant and --minus say, which the base has.
func (c *common) loadVariant() (*base.Base, base.Variant, error) {
	v, err := base.ParseVariant(c.variant)
	if err != nil {
		return nil, "", err
	}
	b, err := c.load()
	if err != nil {
		return nil, "", err
	}
	v = v.Without(c.minus...)
	return b, v, b.HasVariant(v)
}

func main() { os.Exit(Main(os.Args[1:])) }

// Main runs the command line and returns its exit status.
func Main(args []string) int {
	c := &common{}
	c.cmd = group(&cobra.Command{
		Use:           "holdfast",
		Short:         "Build and test drop-in binaries of old Kubernetes releases (the labs are run by lab)",
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	cmd := c.cmd
	cmd.PersistentFlags().StringVar(&c.root, "root", ".", "the Holdfast checkout, or a folder inside it")
	cmd.PersistentFlags().StringVar(&c.base, "base", "", "upstream release to work on: a folder of bases/ (default the one whose base.json says so)")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%v", err) })
	cmd.AddCommand(buildCommand(c), versionCommand(c), sourceCommand(c), discardCommand(c), vendorCommand(c), patchesCommand(c),
		testCommand(c), upstreamTestsCommand(c), minusOneCommand(c), flagsCommand(c), dropinCommand(c))
	cmd.SetArgs(args)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "holdfast: %v\n", err)
	}
	return exit.Code(err)
}

// group makes cmd a command that only has subcommands: without one it shows
// its help, and an unknown one is an error of usage.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		return exit.Usagef("%s has no command %q: it has %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
	}
	return cmd
}

// variantFlag adds --variant, with ours as its default, and --minus.
func (c *common) variantFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.variant, "variant", string(base.Ours), "stock (upstream and what today's Go needs), ours, or another of the base's")
	cmd.Flags().StringSliceVar(&c.minus, "minus", nil, "fixes to leave out of the variant (comma separated)")
	return cmd
}
