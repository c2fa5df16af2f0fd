// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
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
		Short: "Compare the command lines of stock and ours",
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
			if o.Official != "" {
				if o.StockDir, err = dropin.Official(o.Official, o.Sums, filepath.Join(root, "_output", "dropin", "official")); err != nil {
					return err
				}
			}
			for _, v := range []base.Variant{base.Stock, base.Ours} {
				if v == base.Stock && o.Official != "" {
					continue
				}
				if _, err := builder.Build(b, builder.Options{Variant: v, Binaries: dropin.Components}); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			n, err := commandline.Compare(ctx, o)
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
	mutant := &cobra.Command{
		Use: "mutant", Short: "Build a kubelet of ours with changes that the comparison must catch, and see that it catches the flag", Args: exit.NoArgs,
		Long: "Build a kubelet of ours with the changes of tools/internal/dropin/mutant.go, and see that the command line\n" +
			"shows those that it can show.",
		RunE: func(*cobra.Command, []string) error {
			root, err := base.FindRoot(c.root)
			if err != nil {
				return err
			}
			return buildMutant(root)
		},
	}
	queued := &cobra.Command{
		Use: "queued", Short: "Build a kubelet of ours that sends unready statuses behind its other requests, for the lab endpoints-rules-queued", Args: exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			root, err := base.FindRoot(c.root)
			if err != nil {
				return err
			}
			_, err = buildChanged(root, dropin.QueuedDir, dropin.Queued)
			return err
		},
	}
	cmd.AddCommand(page, mutant, queued)
	return cmd
}

// buildChanged builds a kubelet of ours with these changes, into a folder below root, and returns
// the go command's overlay with them.
func buildChanged(root, into string, mutants []dropin.Mutant) (overlay string, err error) {
	b, err := base.Load(root, dropin.Base)
	if err != nil {
		return "", err
	}
	if _, err := builder.Source(b, base.Ours); err != nil {
		return "", err
	}
	files, err := dropin.Mutate(mutants, func(file string) ([]byte, error) {
		return os.ReadFile(filepath.Join(b.SrcDir(base.Ours), filepath.FromSlash(file)))
	})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, filepath.FromSlash(into))
	if overlay, err = builder.Overlay(b, base.Ours, filepath.Join(dir, "overlay"), files); err != nil {
		return "", err
	}
	_, err = builder.Build(b, builder.Options{Variant: base.Ours, Binaries: []string{dropin.Kubelet}, BinDir: dir, Overlay: overlay})
	return overlay, err
}

// buildMutant builds the kubelet with all mutants, and compares its flags with those of ours.
func buildMutant(root string) error {
	overlay, err := buildChanged(root, dropin.MutantDir, dropin.Mutants)
	if err != nil {
		return err
	}
	uncaught, err := commandline.Mutant(root, overlay)
	if err != nil {
		return err
	}
	if len(uncaught) > 0 {
		return exit.Preconditionf("not caught:\n%s", strings.Join(uncaught, "\n"))
	}
	fmt.Printf("%s has %d mutants; each that the command line can show is caught there\n", filepath.Join(root, filepath.FromSlash(dropin.MutantDir), dropin.Kubelet), len(dropin.Mutants))
	return nil
}
