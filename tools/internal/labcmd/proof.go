// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/outcomes"
	"holdfast/tools/internal/proof"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/trackrecord"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// proofCmd runs the matrix of slugs and variants.
func proofCmd() *cobra.Command {
	var profile string
	var seed uint64
	var atOnce int
	var list, write bool
	c := &cobra.Command{
		Use: "proof [SLUG...]", Short: "Run each lab on stock, ours, ours without its slug and ours with its gates off, as far as that is not done",
		Long: `Run the matrix of slugs and variants, and write _output/proof/proof.json and proof.html.

A run is repeated only if its binaries, its lab or the kit have changed since the last one, here or
in matrix.json, or if it could not tell. So the command can be interrupted, and goes on where it
was. Exit status 1: an answer is not right, or is missing.`,
		Example: `  lab proof
  lab proof hash-collision rbd-detach
  lab proof --list
  lab proof --write`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, only []string) error {
			root, err := base.FindRoot(rootFlag(c))
			if err != nil {
				return err
			}
			if p := labkit.Profile(profile); p != labkit.Short && p != labkit.Long {
				return exit.Usagef("--profile %q: it is short or long", profile)
			}
			if atOnce < 1 {
				return exit.Usagef("--at-once %d: it is 1 or more", atOnce)
			}
			if err := useTable(c); err != nil {
				return err
			}
			table, err := slugs.Load(root)
			if err != nil {
				return err
			}
			for _, s := range only {
				if table.Find(s) == nil {
					return exit.Usagef("no slug %q: slugs.json has %s", s, strings.Join(slugs.Names(table.Slugs), ", "))
				}
			}
			rows, err := proof.Rows(table, nil, labkit.Profile(profile), seed)
			if err != nil {
				return err
			}
			asked, err := proof.Rows(table, only, labkit.Profile(profile), seed)
			if err != nil {
				return err
			}
			ctx, cancel := signalled()
			defer cancel()
			return runProof(ctx, c, root, rows, asked, proof.Options{Root: root, AtOnce: atOnce, Out: c.OutOrStdout()}, list, write)
		},
	}
	c.Flags().StringVar(&profile, "profile", "short", "short or long")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of all random choices of the labs")
	c.Flags().IntVar(&atOnce, "at-once", 2, "how many labs run side by side")
	c.Flags().BoolVar(&list, "list", false, "list the runs and what is due, and run nothing")
	c.Flags().BoolVar(&write, "write", false, "then also write "+proof.RecordFile+", "+proof.MarkdownFile+" and "+trackrecord.Page+"'s track record")
	return c
}

// runProof runs what is due of the rows asked for, then writes the page of all rows.
func runProof(ctx context.Context, c *cobra.Command, root string, rows, asked []proof.Row, o proof.Options, list, write bool) error {
	k, err := newKeys(ctx, root)
	if err != nil {
		return err
	}
	keys := map[proof.Cell]string{}
	for _, cell := range proof.Cells(rows) {
		if keys[cell], err = k.Key(cell); err != nil {
			return err
		}
	}
	record, err := proof.LoadRecord(root)
	if err != nil {
		return err
	}
	store := proof.Store{Root: root, Record: record}
	var due []proof.Cell
	var labs []string // of those
	cells := proof.Cells(asked)
	for _, cell := range cells {
		r, err := store.Best(cell, keys[cell])
		if err != nil {
			return err
		}
		if proof.Due(r, keys[cell]) {
			due, labs = append(due, cell), append(labs, cell.Lab)
		}
		if list {
			state := "due"
			if !proof.Due(r, keys[cell]) {
				state = string(r.Outcome.Verdict)
			}
			fmt.Fprintf(o.Out, "%s\t%s\t%s\n", cell.Lab, cell.Variant, state)
		}
	}
	if list {
		return nil
	}
	fmt.Fprintf(o.Out, "proof: %d of %d runs are due\n", len(due), len(cells))
	if len(due) > 0 { // all have the profile that was asked for
		if err := buildChanged(ctx, c, labs, due[0].Profile); err != nil {
			return err
		}
	}
	o.Build = func(ctx context.Context, needs []labkit.Binary) error { return build(ctx, c, needs, nil) }
	o.Clean = func(v labkit.Variant) error { return cleanVariant(root, v) }
	ran := proof.Run(ctx, due, keys, o)
	m, err := proof.Show(rows, keys, store)
	if err != nil {
		return err
	}
	pages := map[string]func(io.Writer) error{"_output/proof/proof.json": m.WriteJSON, "_output/proof/proof.html": m.WriteHTML}
	for name, write := range pages {
		if err := writeFile(filepath.Join(root, name), write); err != nil {
			return err
		}
	}
	fmt.Fprintf(o.Out, "proof: _output/proof/proof.html\n")
	if write {
		if err := writeProof(root, rows, m, record, o.Out); err != nil {
			return errors.Join(ran, err)
		}
	}
	if ran != nil {
		return ran
	}
	mine, err := proof.Show(asked, keys, store)
	if err != nil {
		return err
	}
	if faults := mine.Faults(); len(faults) > 0 {
		return exit.Preconditionf("not all runs answered as they must:\n  %s", strings.Join(faults, "\n  "))
	}
	return nil
}

// writeProof takes the matrix into the record, and writes the pages that are made of it.
func writeProof(root string, rows []proof.Row, m *proof.Matrix, record *proof.Record, out io.Writer) error {
	for _, why := range record.Take(m) {
		fmt.Fprintf(out, "proof: not recorded: %s\n", why)
	}
	if err := record.Save(root); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(root, proof.MarkdownFile), record.Matrix(rows).WriteMarkdown); err != nil {
		return err
	}
	known, err := outcomes.Load(root)
	if err != nil {
		return err
	}
	table, err := slugs.Load(root)
	if err != nil {
		return err
	}
	return writeTrackRecord(root, table, known, record)
}

// writeTrackRecord brings README's table up to date.
func writeTrackRecord(root string, table *slugs.Table, known *outcomes.Record, proved *proof.Record) error {
	file := filepath.Join(root, trackrecord.Page)
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	updated, err := trackrecord.Update(string(page), table, known, proved.Without, trackrecord.Find)
	if err != nil || updated == string(page) {
		return err
	}
	return os.WriteFile(file, []byte(updated), 0o644)
}

// newKeys are the keys of the checkout at root.
func newKeys(ctx context.Context, root string) (*proof.Keys, error) {
	return proof.NewKeys(root, func(b labkit.Binary) (string, error) { return sourceKey(ctx, root, b) })
}

// sourceKey asks the holdfast command, which knows the trees.
func sourceKey(ctx context.Context, root string, b labkit.Binary) (string, error) {
	cmd := exec.CommandContext(ctx, holdfast(root), "source-key", "--root", root, "--base", b.Base, "--variant", string(b.Variant), b.Name)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", exit.Preconditionf("%s: %v: %s (run make tools if it is not built)", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// choose is the labs of make test, and where only what has changed is to run, without what the
// committed record has the answer of. It looks at nothing else below the checkout, so that two of
// one commit run the same.
func choose(c *cobra.Command, changed bool) (proof.Choice, error) {
	if !changed {
		return proof.Choice{Runs: run.SuiteRuns()}, nil
	}
	root, err := base.FindRoot(rootFlag(c))
	if err != nil {
		return proof.Choice{}, err
	}
	table, err := slugs.Load(root)
	if err != nil {
		return proof.Choice{}, err
	}
	record, err := proof.LoadRecord(root)
	if err != nil {
		return proof.Choice{}, err
	}
	k, err := newKeys(c.Context(), root)
	if err != nil {
		return proof.Choice{}, err
	}
	return proof.ChooseFor(table, record, k.Key)
}

// noteProof stores the answers of a suite as runs of the matrix, which need not be repeated: of a
// checkout without changes, whose code is still that of its commit.
func noteProof(ctx context.Context, c *cobra.Command, outcomes []run.Outcome) error {
	root, err := base.FindRoot(rootFlag(c))
	if err != nil {
		return err
	}
	k, err := newKeys(ctx, root)
	if err != nil {
		return err
	}
	n, err := proof.Note(proof.Store{Root: root}, k.Key, outcomes, run.Commit(root))
	fmt.Fprintf(c.OutOrStdout(), "proof: %d of %d answers stored for lab proof\n", n, len(outcomes))
	return err
}

// cleanVariant removes the trees and binaries of a variant in all bases: one of each
// slug would fill the disk.
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

func writeFile(name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err // what was there stays
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
