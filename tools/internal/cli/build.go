// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/build"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/tree"
)

func buildCommand(c *common) *cobra.Command {
	var o build.Options
	var all bool
	cmd := &cobra.Command{
		Use:   "build [BINARY...]",
		Short: "Build binaries; without names those of the product",
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			o.Variant, o.Binaries = c.variant, args
			if all {
				o.Binaries = b.BinaryNames(false)
			}
			files, err := build.Build(b, o)
			for _, f := range files {
				if r, err := filepath.Rel(b.Root, f); err == nil {
					f = r
				}
				fmt.Println(f)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "build from vendor/ (see make vendor) and ask no network")
	cmd.Flags().BoolVar(&all, "all", false, "build all binaries of the base")
	cmd.Flags().StringVar(&o.BinDir, "out", "", "folder for the binaries (default _output/bin/<base>/<variant>)")
	return c.variantFlag(cmd)
}

func sourceCommand(c *common) *cobra.Command {
	return c.variantFlag(&cobra.Command{
		Use:   "source",
		Short: "Write the source tree of the base, generated code included",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			_, err = build.Source(b, c.variant)
			return err
		},
	})
}

func discardCommand(c *common) *cobra.Command {
	return c.variantFlag(&cobra.Command{
		Use:   "discard",
		Short: "Give up the edits in a materialised tree and write it anew",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			edits, err := (&tree.Tree{Base: b, Variant: c.variant}).Discard()
			if err != nil {
				return err
			}
			for _, e := range edits {
				fmt.Printf("gave up %s (%s)\n", e.Path, e.Kind)
			}
			_, err = build.Source(b, c.variant)
			return err
		},
	})
}

func vendorCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "vendor",
		Short: "Write vendor/ and tools/vendor/, from which --offline builds",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			return build.Vendor(b)
		},
	}
}
