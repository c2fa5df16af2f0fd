// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/builder"
	"holdfast/tools/internal/commandline"
	"holdfast/tools/internal/dropin"
	"holdfast/tools/internal/exit"
)

func dropinCommand(c *common) *cobra.Command {
	o := commandline.Options{Out: os.Stdout}
	cmd := &cobra.Command{
		Use:   "dropin",
		Short: "Compare the command lines of stock and ours; what a cluster shows is compared by lab dropin",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			root, err := base.FindRoot(c.root)
			if err != nil {
				return err
			}
			b, err := base.Load(root, dropin.Base)
			if err != nil {
				return err
			}
			o.Root, o.OursDir, o.StockDir = root, b.BinDir(base.Ours), b.BinDir(base.Stock)
			for _, v := range []base.Variant{base.Stock, base.Ours} {
				if v == base.Stock && o.Official != "" {
					continue
				}
				if _, err := builder.Build(b, builder.Options{Variant: v, Binaries: dropin.Components}); err != nil {
					return err
				}
			}
			if o.Official != "" {
				if o.StockDir, err = dropin.Official(o.Official, o.Sums, filepath.Join(root, "_output", "dropin", "official")); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			n, err := commandline.Compare(ctx, o)
			if err == nil {
				fmt.Printf("%d facts of the command lines compared: every difference is in %s\n", n, dropin.File)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Official, "stock", "", "folder with upstream's own binaries, or its kubernetes-server-linux-amd64.tar.gz, to compare with instead of our build of stock")
	cmd.Flags().StringVar(&o.Sums, "sums", "", "list of their sums (SHA-256 or SHA-512): sha256sum's form, or upstream's CHANGELOG-1.9.md")
	page := &cobra.Command{
		Use: "page", Short: "Write " + dropin.Page + " from " + dropin.File, Args: exit.NoArgs,
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
