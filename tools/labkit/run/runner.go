// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run runs labs: each variant in a machine of its own, bounded, cleaned up
// after, its answer judged and kept as an outcome. It also starts the cluster of the
// command up.
package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
)

// Options says how to run labs.
type Options struct {
	Profile labkit.Profile
	Seed    uint64
	// Keep keeps all artefacts, whatever the answer.
	Keep bool
	// Only restricts the variants; empty means all of the lab's.
	Only []labkit.Variant
	// Bins are rules as for NewBinaries.
	Bins []string
	// Root is the checkout or a folder inside it; "" is the current directory.
	Root string
	// Timeout overrides the labs' bound of one variant's run.
	Timeout time.Duration
	Out     io.Writer
}

// Failed is the error of Labs when outcomes are not as expected: those that are not.
type Failed []labkit.Outcome

func (f Failed) Error() string {
	var b strings.Builder
	b.WriteString("not as expected:")
	for _, o := range f {
		fmt.Fprintf(&b, "\n  %s (%s): %s: %s", o.Lab, o.Variant, o.Verdict, o.FirstLine())
	}
	return b.String()
}

// failed is a Failed with those of outs that are not as expected; nil if all are.
func failed(outs []labkit.Outcome) error {
	bad := slices.DeleteFunc(slices.Clone(outs), labkit.Outcome.AsExpected)
	if len(bad) == 0 {
		return nil
	}
	return Failed(bad)
}

// Labs runs each lab in all its variants and prints plan, steps and
// verdicts. The error is a Failed, a usage error of package exit, or a failed
// precondition. The outcomes so far are returned in any case, and kept.
func Labs(ctx context.Context, labs []*labkit.Lab, o Options) ([]labkit.Outcome, error) {
	root, err := base.FindRoot(o.Root)
	if err != nil {
		return nil, err
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Profile != labkit.Short && o.Profile != labkit.Long {
		return nil, exit.Usagef("--profile %q: want %s or %s", o.Profile, labkit.Short, labkit.Long)
	}
	bins, err := labkit.NewBinaries(root, o.Bins)
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	type job struct {
		lab      *labkit.Lab
		variants []labkit.Variant
	}
	var jobs []job
	var needs []labkit.Binary
	var pkgs []string
	for _, l := range labs {
		vs := l.Runs()
		if len(o.Only) > 0 {
			vs = nil
			for _, v := range o.Only {
				if l.Expected(v) == "" {
					return nil, exit.Usagef("--variant %q: lab %s has %s and \"%s -FIX\"", v, l.Name, words(l.Runs()), labkit.Ours)
				}
				if v == labkit.GateOff && len(l.Gates()) == 0 {
					return nil, exit.Usagef("--variant %s: lab %s has no feature gate", v, l.Name)
				}
				vs = append(vs, v)
			}
		}
		for _, v := range vs {
			for _, b := range l.NeedsIn(o.Profile) {
				needs = append(needs, b.For(v))
			}
		}
		pkgs = append(pkgs, l.Packages...)
		jobs = append(jobs, job{l, vs})
	}
	if err := prepare(ctx, root, bins, needs, pkgs, o.Out); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(jobs, func(j job) bool { return j.lab.Kernel }) {
		if err := fetchKernel(ctx, root, o.Out); err != nil {
			return nil, err
		}
	}

	var all []labkit.Outcome
	for _, j := range jobs {
		outs, err := runLab(ctx, j.lab, j.variants, root, bins, o)
		if err != nil {
			return all, err
		}
		all = append(all, outs...)
		if err := keepOutcomes(root, j.lab.Name, o.Profile, outs); err != nil {
			return all, err
		}
		if ctx.Err() != nil {
			return all, fmt.Errorf("lab %s: %w", j.lab.Name, context.Cause(ctx))
		}
	}
	return all, failed(all)
}

func words(vs []labkit.Variant) string {
	var out []string
	for _, v := range vs {
		out = append(out, string(v))
	}
	return strings.Join(out, ", ")
}

// prepare checks the preconditions of every lab.
func prepare(ctx context.Context, root string, bins *labkit.Binaries, needs []labkit.Binary, pkgs []string, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("a lab starts real components in namespaces of their own and needs root: run it with sudo")
	}
	if err := bins.Check(needs); err != nil {
		return err
	}
	if _, err := machine.Hierarchies(); err != nil {
		return err
	}
	machine.SweepCgroups()
	if err := InstallPackages(ctx, append(append([]string(nil), DebianPackages...), pkgs...), out); err != nil {
		return err
	}
	return buildTools(ctx, root)
}

func newID() (string, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}

func runLab(ctx context.Context, l *labkit.Lab, vs []labkit.Variant, root string, bins *labkit.Binaries, o Options) ([]labkit.Outcome, error) {
	id, err := newID()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "_output", "lab", l.Name, fmt.Sprintf("%s-seed%d-%s", time.Now().UTC().Format("20060102-150405"), o.Seed, id))
	fmt.Fprintf(o.Out, "lab %s: %s\n  profile %s, seed %d\n", l.Name, l.Summary, o.Profile, o.Seed)
	printPlan(o.Out, l, vs, o)
	fmt.Fprintf(o.Out, "  variants:")
	for _, v := range vs {
		fmt.Fprintf(o.Out, " %s must be %s;", v, l.Expected(v))
	}
	fmt.Fprintln(o.Out)
	timeout := o.Timeout
	if timeout == 0 {
		timeout = l.Bound(o.Profile)
	}
	var outs []labkit.Outcome
	commit := commitOf(root, len(bins.Rules) > 0)
	for i, v := range vs {
		if ctx.Err() != nil {
			break
		}
		req := request{Lab: l.Name, Gates: l.Gates(), Fixes: l.Fixes(), ID: fmt.Sprintf("%s-%d", id, i), Dir: filepath.Join(dir, v.Dir()), Root: root, Variant: v,
			Profile: o.Profile, Seed: o.Seed, Keep: o.Keep, Timeout: timeout, Bins: bins}
		a := runVariantOf(ctx, l, req, commit, o.Out)
		if err := tidy(&a.Outcome, req); err != nil {
			return nil, err
		}
		outs = append(outs, a.Outcome)
	}
	_ = os.Remove(dir) // if it is empty
	printTable(o.Out, l, outs)
	return outs, nil
}

// printPlan prints the plan of each variant, those that are equal once.
func printPlan(w io.Writer, l *labkit.Lab, vs []labkit.Variant, o Options) {
	for i := 0; i < len(vs); {
		lines := l.PlanOf(vs[i], o.Profile, o.Seed)
		same := i + 1
		for same < len(vs) && slices.Equal(lines, l.PlanOf(vs[same], o.Profile, o.Seed)) {
			same++
		}
		of := ""
		if same-i < len(vs) {
			of = " of " + words(vs[i:same])
		}
		fmt.Fprintf(w, "  plan%s:\n", of)
		for n, line := range lines {
			fmt.Fprintf(w, "  %3d. %s\n", n+1, line)
		}
		i = same
	}
}

func printTable(w io.Writer, l *labkit.Lab, outs []labkit.Outcome) {
	fmt.Fprintf(w, "verdict of %s:\n", l.Name)
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  variant\tverdict\texpected\t\ttook\tCPU\twhy")
	for _, o := range outs {
		mark := "ok"
		if !o.AsExpected() {
			mark = "WRONG"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.1fs\t%.0fs\t%s\n", o.Variant, o.Verdict, o.Expected, mark, o.Seconds, o.CPUSeconds, o.FirstLine())
	}
	t.Flush()
	for _, o := range outs {
		for _, f := range o.Facts {
			fmt.Fprintf(w, "  %s: %s\n", o.Variant, f)
		}
		if _, more, ok := strings.Cut(o.Why, "\n"); ok {
			fmt.Fprintf(w, "  %s, in full:\n%s\n", o.Variant, process.Indent(more))
		}
		if o.Artefacts != "" {
			fmt.Fprintf(w, "  %s: artefacts in %s\n", o.Variant, o.Artefacts)
		}
	}
}
