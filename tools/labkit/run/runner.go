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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/journal"
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

// Failed is the error of Labs when a lab did not answer as it must. Both lists
// have entries like "cluster-smoke (ours)".
type Failed struct {
	// Labs are all of them.
	Labs []string
	// Wrong are those of Labs that gave an answer, and it was not the one that
	// they must give. The others could not tell.
	Wrong []string
	// why has the verdict of each of Labs, with the first line of its reason.
	why []string
}

func (f *Failed) Error() string {
	return "not as expected:\n  " + strings.Join(f.why, "\n  ")
}

// request is what the machine's runner is told, response what it answers.
type request struct {
	Lab, ID, Dir, Root string
	Gates, Slugs       []string   // of the lab
	Up                 *upCluster `json:",omitempty"` // of the lab up
	Variant            labkit.Variant
	Profile            labkit.Profile
	Seed               uint64
	Keep               bool
	Timeout            time.Duration
	Bins               *labkit.Binaries
}

type response struct {
	Result  labkit.Result
	Numbers []journal.Number
	Took    time.Duration
}

// Labs runs each lab in all its variants and prints plan, steps and
// verdicts. The error is a *Failed, a usage error of package exit, or a failed
// precondition. The outcomes so far are returned in any case, and kept.
func Labs(ctx context.Context, names []string, o Options) ([]Outcome, error) {
	root, err := openCheckout(o.Root)
	if err != nil {
		return nil, err
	}
	return runLabs(ctx, root, names, o)
}

// openCheckout returns the root of the checkout at or above dir, whose slugs.json
// is in use from then on.
func openCheckout(dir string) (root string, err error) {
	if root, err = base.FindRoot(dir); err != nil {
		return "", err
	}
	table, err := slugs.Load(root)
	if err != nil {
		return "", err
	}
	return root, labkit.UseTable(table)
}

// runLabs is Labs for a checkout whose table is in use.
func runLabs(ctx context.Context, root string, names []string, o Options) ([]Outcome, error) {
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
	for _, name := range names {
		l, err := labkit.Find(name)
		if err != nil {
			return nil, exit.Usagef("%v", err)
		}
		vs := l.Runs()
		if len(o.Only) > 0 {
			vs = nil
			for _, v := range o.Only {
				if l.Expected(v) == "" {
					return nil, exit.Usagef("--variant %q: lab %s has %s and \"%s -SLUG\"", v, l.Name, words(l.Runs()), labkit.Ours)
				}
				if v == labkit.GateOff && len(l.Gates()) == 0 {
					return nil, exit.Usagef("--variant %s: lab %s has no feature gate", v, l.Name)
				}
				vs = append(vs, v)
			}
		}
		for _, v := range vs {
			for _, b := range l.Needs {
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

	failed := &Failed{}
	var all []Outcome
	for _, j := range jobs {
		outs, err := runLab(ctx, j.lab, j.variants, root, bins, o)
		if err != nil {
			return all, err
		}
		all = append(all, outs...)
		if err := keepOutcomes(root, j.lab.Name, o.Profile, outs); err != nil {
			return all, err
		}
		for _, out := range outs {
			failed.add(j.lab.Name, out)
		}
		if ctx.Err() != nil {
			return all, fmt.Errorf("lab %s: %w", j.lab.Name, context.Cause(ctx))
		}
	}
	if len(failed.Labs) > 0 {
		return all, failed
	}
	return all, nil
}

func words(vs []labkit.Variant) string {
	var out []string
	for _, v := range vs {
		out = append(out, string(v))
	}
	return strings.Join(out, ", ")
}

// add notes the outcome of one variant of a lab, if it is not what it must be.
func (f *Failed) add(lab string, o Outcome) {
	if o.AsExpected() {
		return
	}
	name := fmt.Sprintf("%s (%s)", lab, o.Variant)
	f.Labs = append(f.Labs, name)
	f.why = append(f.why, fmt.Sprintf("%s: %s: %s", name, o.Verdict, o.line()))
	if o.Verdict != labkit.Inconclusive {
		f.Wrong = append(f.Wrong, name)
	}
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

func runLab(ctx context.Context, l *labkit.Lab, vs []labkit.Variant, root string, bins *labkit.Binaries, o Options) ([]Outcome, error) {
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
	var outs []Outcome
	commit := commitOf(root, len(bins.Rules) > 0)
	for i, v := range vs {
		if ctx.Err() != nil {
			break
		}
		req := request{Lab: l.Name, Gates: l.Gates(), Slugs: l.Slugs(), ID: fmt.Sprintf("%s-%d", id, i), Dir: filepath.Join(dir, v.Dir()), Root: root, Variant: v,
			Profile: o.Profile, Seed: o.Seed, Keep: o.Keep, Timeout: timeout, Bins: bins}
		began := time.Now()
		res, numbers, cpu := runMachine(ctx, req, o.Out)
		out := Outcome{Lab: l.Name, Variant: v, Profile: o.Profile, Seed: o.Seed, Commit: commit, Began: began.UTC().Truncate(time.Second),
			Seconds: time.Since(began).Round(100 * time.Millisecond).Seconds(), CPUSeconds: cpu.Round(100 * time.Millisecond).Seconds(), Expected: l.Expected(v),
			Verdict: res.Verdict, Why: res.Why, Facts: res.Facts, Numbers: numbers}
		if r, err := filepath.Rel(root, req.Dir); err == nil {
			out.Artefacts = r
		}
		if out.AsExpected() && !o.Keep {
			if err := os.RemoveAll(req.Dir); err != nil {
				return nil, err
			}
			out.Artefacts = ""
		} else if !o.Keep {
			dropBulk(req.Dir)
		}
		outs = append(outs, out)
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

// dropBulk removes what is large and says little: image layers and etcd's
// preallocated files (the API's content is in the dump).
func dropBulk(dir string) {
	for _, pattern := range []string{"*/docker", "*.data"} {
		ds, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, d := range ds {
			_ = os.RemoveAll(d)
		}
	}
}

func printTable(w io.Writer, l *labkit.Lab, outs []Outcome) {
	fmt.Fprintf(w, "verdict of %s:\n", l.Name)
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  variant\tverdict\texpected\t\ttook\tCPU\twhy")
	for _, o := range outs {
		mark := "ok"
		if !o.AsExpected() {
			mark = "WRONG"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.1fs\t%.0fs\t%s\n", o.Variant, o.Verdict, o.Expected, mark, o.Seconds, o.CPUSeconds, o.line())
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

// runMachine starts a machine for one variant, waits, and checks from the
// outside that nothing is left. Whatever goes wrong is Inconclusive. The time is that of the
// processors, of all that ran in the machine.
func runMachine(ctx context.Context, req request, out io.Writer) (labkit.Result, []journal.Number, time.Duration) {
	b, err := json.Marshal(req)
	if err != nil {
		return labkit.InconclusiveBecause("%v", err), nil, 0
	}
	if err := os.MkdirAll(req.Dir, 0o755); err != nil {
		return labkit.InconclusiveBecause("%v", err), nil, 0
	}
	file := filepath.Join(req.Dir, "request.json")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return labkit.InconclusiveBecause("%v", err), nil, 0
	}
	cmd := machine.Command(req.ID, InnerCommand, file)
	cmd.Stdout, cmd.Stderr = out, out
	if err := process.StartCmd(cmd, ""); err != nil {
		return labkit.InconclusiveBecause("make the machine's namespaces: %v", err), nil, 0
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	// The machine bounds itself; this is for a machine that hangs.
	hang := time.NewTimer(req.Timeout + 3*time.Minute)
	defer hang.Stop()
	var ended error
	interrupted := ctx.Done()
wait:
	for {
		select {
		case ended = <-done:
			break wait
		case <-interrupted:
			interrupted = nil
			_ = cmd.Process.Signal(syscall.SIGTERM)
			hang.Reset(2 * time.Minute)
		case <-hang.C:
			_ = cmd.Process.Kill()
		}
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	var numbers []journal.Number
	res := labkit.InconclusiveBecause("the lab's process ended without an answer: %s", process.DescribeExit(ended))
	if b, err := os.ReadFile(filepath.Join(req.Dir, "result.json")); err == nil {
		var r response
		if err := json.Unmarshal(b, &r); err != nil {
			return labkit.InconclusiveBecause("result.json: %v", err), nil, 0
		}
		res, numbers = r.Result, r.Numbers
	}
	// A machine that could not clean up took its namespaces with it, but not
	// its cgroups. That they were left is in its answer.
	_ = machine.RemoveCgroups(context.Background(), machine.Cgroup(req.ID))
	if leaks := machine.Leaks(context.Background(), req.Dir, req.ID); len(leaks) > 0 {
		res = labkit.Result{Verdict: labkit.Inconclusive, Facts: res.Facts,
			Why: fmt.Sprintf("left behind outside the machine: %s (answered %s: %s)", machine.Few(leaks), res.Verdict, res.Why)}
	}
	return res, numbers, cpu
}
