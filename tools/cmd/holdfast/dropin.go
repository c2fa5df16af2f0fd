// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/dropin"
	"holdfast/tools/build/exit"
)

func dropinCommand(c *common) *cobra.Command {
	o := dropin.CommandLines{Out: os.Stdout}
	cmd := &cobra.Command{
		Use:   "dropin",
		Short: "Compare the command lines of stock and ours",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			b, err := c.load()
			if err != nil {
				return err
			}
			if !slices.Contains(dropin.Bases, b.Name) {
				return exit.Usagef("--base %s: it is one of %s", b.Name, strings.Join(dropin.Bases, ", "))
			}
			o.Base, o.Root, o.OursDir, o.StockDir = b.Name, b.Root, b.BinDir(base.Ours), b.BinDir(base.Stock)
			if o.Official != "" {
				if o.StockDir, err = dropin.Official(o.Official, o.Sums, filepath.Join(b.Root, "_output", "dropin", "official")); err != nil {
					return err
				}
			}
			for _, v := range []base.Variant{base.Stock, base.Ours} {
				if v == base.Stock && o.Official != "" {
					continue
				}
				if _, err := builder.Build(ctx, b, builder.Options{Variant: v, Binaries: dropin.Components}); err != nil {
					return err
				}
			}
			n, err := dropin.CompareCommandLines(ctx, o)
			if err == nil {
				fmt.Printf("%d facts of the command lines compared: every difference is of a fix\n", n)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Official, "stock", "", "folder with upstream's own binaries, or its kubernetes-server-linux-amd64.tar.gz, to compare with instead of our build of stock")
	cmd.Flags().StringVar(&o.Sums, "sums", "", "list of their sums (SHA-256 or SHA-512): sha256sum's form, or upstream's CHANGELOG-1.9.md")
	page := &cobra.Command{
		Use: "page", Short: "Write " + dropin.Page + " from the fixes", Args: exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			root, err := base.FindRoot(c.root)
			if err != nil {
				return err
			}
			return dropin.WritePage(root)
		},
	}
	cmd.AddCommand(page)
	return cmd
}
