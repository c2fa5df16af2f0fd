// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"context"
	"fmt"
	"io"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/flagtable"
)

// CommandLines says what CompareCommandLines compares.
type CommandLines struct {
	Root, Base        string
	StockDir, OursDir string // with the binaries
	// Official is set if StockDir has upstream's own binaries, Sums is their list.
	Official, Sums string
	Out            io.Writer
}

// CompareCommandLines looks at stock, at ours, and at ours with the gates off, and holds the
// differences against the table. It returns how many facts stock has.
func CompareCommandLines(ctx context.Context, o CommandLines) (int, error) {
	all, err := fixes.Load(o.Root)
	if err != nil {
		return 0, err
	}
	table, err := New(all, o.Base)
	if err != nil {
		return 0, err
	}
	stock, ours := Build{Dir: o.StockDir}, Build{Dir: o.OursDir}
	if o.Official == "" {
		if stock.Programs, err = programs(ctx, o.Root, o.Base, base.Stock); err != nil {
			return 0, err
		}
		if ours.Programs, err = programs(ctx, o.Root, o.Base, base.Ours); err != nil {
			return 0, err
		}
	}
	off := ours
	off.GatesOff = GatesToSet(all, o.Base)
	runs := map[string][]Run{}
	for name, build := range map[string]Build{"stock": stock, Ours: ours, GatesOff: off} {
		r, err := ObserveCommandLine(ctx, build)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		runs[name] = []Run{r}
	}
	wrong := 0
	for _, name := range Builds {
		v := table.Judge(name, CommandLineKinds(o.Official == ""), Compare(runs["stock"], runs[name]))
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

// CommandLineMutants compares the flags of ours with those of the mutants, which are built with an
// overlay of the go command, and returns the mutants that this does not show.
func CommandLineMutants(ctx context.Context, root, overlay string) ([]string, error) {
	var runs [2]Run
	for i, more := range [][]string{nil, {"-overlay=" + overlay}} {
		file, err := flagtable.Program(ctx, root, Base, Kubelet, base.Ours, more...)
		if err != nil {
			return nil, err
		}
		said, err := flagtable.Say(file)
		if err != nil {
			return nil, err
		}
		runs[i] = ofSource(Kubelet, said)
	}
	return Uncaught(Mutants, []string{"flag"}, Compare(runs[:1], runs[1:])), nil
}

func programs(ctx context.Context, root, of string, v base.Variant) (map[string]string, error) {
	out := map[string]string{}
	for _, c := range Components {
		file, err := flagtable.Program(ctx, root, of, c, v)
		if err != nil {
			return nil, err
		}
		out[c] = file
	}
	return out, nil
}
