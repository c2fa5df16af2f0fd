// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/flagtable"
)

func flagsCommand(c *common) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "flags",
		Short: "Write the table of the releases' flags and feature gates, and its page",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := base.FindRoot(c.root)
			if err != nil {
				return err
			}
			if !check {
				return flagtable.Write(cmd.Context(), root, os.Stdout)
			}
			n, err := flagtable.Check(cmd.Context(), root, os.Stdout)
			if err == nil {
				fmt.Printf("%d answers of the binaries agree with the table\n", n)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing: compare with what is committed, and ask the binaries (make binaries)")
	return cmd
}
