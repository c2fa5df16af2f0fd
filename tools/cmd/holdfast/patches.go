// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/patch"
	"holdfast/tools/build/tree"
)

func patchesCommand(c *common) *cobra.Command {
	cmd := group(&cobra.Command{Use: "patches", Short: "Check the patches, or carry edits of a tree back into them"})
	cmd.AddCommand(
		&cobra.Command{
			Use:   "check",
			Short: "Check names, trailers and normal form of all bases' patches",
			Args:  exit.NoArgs,
			RunE:  func(*cobra.Command, []string) error { return c.checkPatches() },
		},
		extractCommand(c),
		c.variantFlag(&cobra.Command{
			Use:   "normalise",
			Short: "Rewrite the patches of the base in normal form",
			Args:  exit.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				b, v, err := c.loadVariant()
				if err != nil {
					return err
				}
				return report((&tree.Tree{Base: b, Variant: v}).Normalise())
			},
		}),
	)
	return cmd
}

func extractCommand(c *common) *cobra.Command {
	var into string
	cmd := c.variantFlag(&cobra.Command{
		Use:   "extract",
		Short: "Carry the edits of the tree back into overlay and patches",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, v, err := c.loadVariant()
			if err != nil {
				return err
			}
			changed, err := (&tree.Tree{Base: b, Variant: v}).Extract(into)
			if err := report(changed, err); err != nil || len(changed) == 0 {
				return err
			}
			// So that the tree knows the patches as they are now, and can be edited
			// and carried back again.
			_, err = builder.Source(cmd.Context(), b, v)
			return err
		},
	})
	cmd.Flags().StringVar(&into, "patch", "", "patch file, patches/FIX/BASE/NNNN.patch, that takes edits of upstream files which no patch changes yet")
	return cmd
}

func report(changed []string, err error) error {
	for _, f := range changed {
		fmt.Println("wrote", f)
	}
	if err == nil && len(changed) == 0 {
		fmt.Println("nothing to carry back")
	}
	return err
}

func (c *common) checkPatches() error {
	root, err := base.FindRoot(c.root)
	if err != nil {
		return err
	}
	all, err := base.All(root)
	if err != nil {
		return err
	}
	var bad []string
	seen := map[string]bool{}
	for _, b := range all {
		patches, err := patch.Load(root, b.Fixes.Patches(b.Name))
		if err != nil {
			return err
		}
		for _, p := range patches {
			if !seen[p.File] {
				seen[p.File] = true
				bad = append(bad, p.Check()...)
			}
		}
	}
	if len(bad) > 0 {
		return exit.Preconditionf("%d faults in the patches:\n%s", len(bad), strings.Join(bad, "\n"))
	}
	fmt.Fprintf(os.Stderr, "patches: %d are well formed\n", len(seen))
	return nil
}
