// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of the holdfast command: one file a group of
// subcommands.
package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/labcmd"
)

// DefaultBase is the base that commands work on when none is named.
const DefaultBase = "v1.9.11"

// common are the flags that most subcommands share.
type common struct {
	root, base, variant string
}

func (c *common) load() (*base.Base, error) {
	root, err := base.FindRoot(c.root)
	if err != nil {
		return nil, err
	}
	return base.Load(root, c.base)
}

// Main runs the command line and returns its exit status.
func Main(args []string) int {
	c := &common{}
	cmd := group(&cobra.Command{
		Use:           "holdfast",
		Short:         "Build and test drop-in binaries of old Kubernetes releases",
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	cmd.PersistentFlags().StringVar(&c.root, "root", ".", "the Holdfast checkout, or a folder inside it")
	cmd.PersistentFlags().StringVar(&c.base, "base", DefaultBase, "upstream release to work on: a folder of bases/")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%v", err) })
	cmd.AddCommand(buildCommand(c), sourceCommand(c), discardCommand(c), vendorCommand(c), patchesCommand(c),
		testCommand(c), upstreamTestsCommand(c), binariesCommand(c))
	cmd.AddCommand(labcmd.Commands()...)
	cmd.SetArgs(args)
	err := cmd.Execute()
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

// variantFlag adds --variant with ours as its default.
func (c *common) variantFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.variant, "variant", base.Ours, "stock (upstream and what today's Go needs) or ours")
	return cmd
}
