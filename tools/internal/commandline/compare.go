// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package commandline

import (
	"context"
	"fmt"
	"io"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/dropin"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/fixes"
	"holdfast/tools/internal/flagtable"
)

// Options says what Compare compares.
type Options struct {
	Root              string
	StockDir, OursDir string // with the binaries
	// Official is set if StockDir has upstream's own binaries, Sums is their list.
	Official, Sums string
	Out            io.Writer
}

// Compare looks at stock, at ours, and at ours with the gates off, and holds the
// differences against the table. It returns how many facts stock has.
func Compare(ctx context.Context, o Options) (int, error) {
	all, err := fixes.Load(o.Root)
	if err != nil {
		return 0, err
	}
	table, err := dropin.New(all)
	if err != nil {
		return 0, err
	}
	stock, ours := Build{Dir: o.StockDir}, Build{Dir: o.OursDir}
	if o.Official == "" {
		if stock.Programs, err = programs(o.Root, base.Stock); err != nil {
			return 0, err
		}
		if ours.Programs, err = programs(o.Root, base.Ours); err != nil {
			return 0, err
		}
	}
	off := ours
	off.GatesOff = dropin.GatesToSet(all)
	runs := map[string][]dropin.Run{}
	for name, build := range map[string]Build{"stock": stock, dropin.Ours: ours, dropin.GatesOff: off} {
		r, err := Observe(ctx, build)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		runs[name] = []dropin.Run{r}
	}
	wrong := 0
	for _, name := range dropin.Builds {
		v := table.Judge(name, Kinds(o.Official == ""), dropin.Compare(runs["stock"], runs[name]))
		fmt.Fprint(o.Out, v.Report(name))
		if !v.OK() {
			wrong++
		}
	}
	if wrong > 0 {
		return 0, exit.Preconditionf("stock and ours differ on the command line in what is of no fix: undo it, or enter it in \"differences\" of the fix.json that makes it and run make differences")
	}
	return len(runs["stock"][0]), nil
}

// Mutant compares the flags of ours with those of the mutants, which are built with an
// overlay of the go command, and returns the mutants that this does not show.
func Mutant(root, overlay string) ([]string, error) {
	var runs [2]dropin.Run
	for i, more := range [][]string{nil, {"-overlay=" + overlay}} {
		file, err := flagtable.Program(root, dropin.Kubelet, base.Ours, more...)
		if err != nil {
			return nil, err
		}
		said, err := flagtable.Say(file)
		if err != nil {
			return nil, err
		}
		runs[i] = ofSource(dropin.Kubelet, said)
	}
	return dropin.Uncaught(dropin.Mutants, []string{"flag"}, dropin.Compare(runs[:1], runs[1:])), nil
}

func programs(root string, v base.Variant) (map[string]string, error) {
	out := map[string]string{}
	for _, c := range dropin.Components {
		file, err := flagtable.Program(root, c, v)
		if err != nil {
			return nil, err
		}
		out[c] = file
	}
	return out, nil
}
