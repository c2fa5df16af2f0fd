// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/tree"
)

func buildCommand(c *common) *cobra.Command {
	var o builder.Options
	var all bool
	cmd := &cobra.Command{
		Use:   "build [BINARY...]",
		Short: "Build binaries; without names those of the product",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, v, err := c.loadVariant()
			if err != nil {
				return err
			}
			o.Variant, o.Binaries = v, args
			if all {
				o.Binaries = b.BinaryNames(false)
			}
			files, err := builder.Build(cmd.Context(), b, o)
			for _, f := range files {
				if r, err := filepath.Rel(b.Root, f); err == nil {
					f = r
				}
				fmt.Println(f)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "build from what make vendor wrote, without the network")
	cmd.Flags().BoolVar(&all, "all", false, "build all binaries of the base")
	cmd.Flags().StringVar(&o.BinDir, "out", "", "folder for the binaries (default _output/bin/<base>/<variant>)")
	return c.variantFlag(cmd)
}

func versionCommand(c *common) *cobra.Command {
	return c.variantFlag(&cobra.Command{
		Use:   "version",
		Short: "Print the version that a build of this checkout has",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, v, err := c.loadVariant()
			if err != nil {
				return err
			}
			version, err := builder.Release(b, v)
			if err == nil {
				fmt.Println(version)
			}
			return err
		},
	})
}

func sourceCommand(c *common) *cobra.Command {
	return c.variantFlag(&cobra.Command{
		Use:   "source",
		Short: "Write the source tree of the base to _output/src, generated code included",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, v, err := c.loadVariant()
			if err != nil {
				return err
			}
			_, err = builder.Source(cmd.Context(), b, v)
			return err
		},
	})
}

func discardCommand(c *common) *cobra.Command {
	return c.variantFlag(&cobra.Command{
		Use:   "discard-edits",
		Short: "Discard the edits made by hand in a source tree below _output/src",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, v, err := c.loadVariant()
			if err != nil {
				return err
			}
			edits, err := (&tree.Tree{Base: b, Variant: v}).Discard()
			if err != nil {
				return err
			}
			for _, e := range edits {
				fmt.Printf("discarded %s (%s)\n", e.Path, e.Kind)
			}
			_, err = builder.Source(cmd.Context(), b, v)
			return err
		},
	})
}

func vendorCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "vendor",
		Short: "Write the folders from which --offline builds: vendor/ (or bases/<base>/vendor) and tools/vendor/",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			return builder.Vendor(cmd.Context(), b)
		},
	}
}
