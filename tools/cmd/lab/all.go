// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
	"holdfast/tools/record/outcomes"
	"holdfast/tools/record/proof"
	"holdfast/tools/record/trackrecord"
	"holdfast/tools/verify/pictures"
)

// allCmd runs every lab in every variant and writes the record.
func allCmd() *cobra.Command {
	var rest bool
	o := proof.Options{}
	c := &cobra.Command{
		Use: "all [NAME...]", Short: "Run labs in every variant, also without their fix, and write the record; without a name: all labs",
		Long: `Run each lab of the profile short on stock, ours, ours without its fix and ours with its gates off,
and in any other variants that it has. An inconclusive run is repeated at most twice.

Then write each verdict that is as expected into ` + outcomes.File + `, the track record and
` + proof.MarkdownFile + `, but only in a checkout without changes, because the record names a commit.
Exit status 1: a verdict is not the expected one, or could not be recorded.`,
		Example: `  lab all
  lab all hash-collision rbd-detach
  lab all --rest`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			root, table, known, err := checkout(c)
			if err = errors.Join(err, notMapped()); err != nil {
				return err
			}
			if o.AtOnce < 1 {
				return exit.Usagef("--at-once %d: want 1 or more", o.AtOnce)
			}
			chosen, err := known.NamedOrAll(names)
			if err != nil {
				return err
			}
			rows := proof.Rows(table, known)
			record, err := outcomes.Load(root)
			if err != nil {
				return err
			}
			ctx, cancel := signalled()
			defer cancel()
			commit := run.Commit(root)
			cells := slices.DeleteFunc(proof.Cells(rows, known), func(cell proof.Cell) bool {
				had := record.Find(cell.Lab.Name, cell.Variant)
				return !slices.Contains(chosen, cell.Lab) || rest && had != nil && had.Commit == commit
			})
			o.Root, o.Out = root, c.OutOrStdout()
			o.Build = func(ctx context.Context, needs []labkit.Binary) error { return build(ctx, c, needs, nil) }
			o.Clean = func(v labkit.Variant) error { return cleanVariant(root, v) }
			fmt.Fprintf(o.Out, "labs: %d runs\n", len(cells))
			var labs []*labkit.Lab
			for _, cell := range cells {
				labs = append(labs, cell.Lab)
			}
			if err := buildChanged(ctx, c, labs, labkit.Short); err != nil {
				return err
			}
			answers, err := proof.Run(ctx, cells, o)
			printCounts(o.Out, answers)
			return errors.Join(err, take(root, table, known, record, answers))
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of all random choices of the labs")
	c.Flags().IntVar(&o.AtOnce, "at-once", 4, "how many labs run side by side")
	c.Flags().BoolVar(&rest, "rest", false, "make only the runs that the record lacks for this commit: after an interruption")
	return c
}

// take puts answers into the record, drops those of runs that there are no more, and writes the
// record and its pages. Answers that it cannot take are its error.
func take(root string, table *fixes.Table, all labkit.Labs, record *outcomes.Record, answers []labkit.Outcome) error {
	var left []string
	for _, a := range answers {
		name := fmt.Sprintf("lab %s (%s)", a.Lab, a.Variant)
		switch {
		case !a.AsExpected():
			left = append(left, fmt.Sprintf("%s answered %s, want %s: %s", name, a.Verdict, a.Expected, a.FirstLine()))
		case !a.OfCommit():
			left = append(left, fmt.Sprintf("%s gave the expected verdict on %q: commit your changes, and run it again", name, a.Commit))
		default:
			record.Put(a)
		}
	}
	cells := proof.Cells(proof.Rows(table, all), all)
	record.Keep(func(lab string, v base.Variant) bool {
		return slices.Contains(cells, proof.Cell{Lab: all.Find(lab), Variant: v})
	})
	if err := record.Save(root); err != nil {
		return err
	}
	if err := writePages(root, table, all, record); err != nil {
		return err
	}
	if len(left) > 0 {
		return exit.Preconditionf("not in the record:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// writePages writes what is made of the record.
func writePages(root string, table *fixes.Table, all labkit.Labs, record *outcomes.Record) error {
	front := filepath.Join(root, trackrecord.FrontPage)
	summary, err := os.ReadFile(front)
	if err != nil {
		return err
	}
	file := filepath.Join(root, trackrecord.Page)
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	updated, err := trackrecord.Update(string(page), table, record, all)
	if err == nil {
		updated, err = trackrecord.Shown(updated, table, record, all)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(updated), 0o644)
	}
	if err == nil {
		updated, err = trackrecord.Shown(string(summary), table, record, all)
	}
	if err == nil {
		err = os.WriteFile(front, []byte(updated), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, proof.MarkdownFile), []byte(proof.Markdown(proof.Rows(table, all), record)), 0o644)
	}
	if err == nil {
		err = pictures.Write(root, record)
	}
	return err
}

// cleanVariant removes the trees and binaries of a variant in all bases: one of each
// fix would fill the disk.
func cleanVariant(root string, v labkit.Variant) error {
	for _, what := range []string{"src", "bin"} {
		dirs, err := filepath.Glob(filepath.Join(root, "_output", what, "*", v.Dir()))
		if err != nil {
			return err
		}
		for _, d := range dirs {
			if err := os.RemoveAll(d); err != nil {
				return err
			}
		}
	}
	return nil
}
