// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
)

// request is what the machine's runner is told, Answer what it answers.
type request struct {
	Lab, ID, Dir, Root string
	Gates, Fixes       []string   // of the lab
	Up                 *upCluster `json:",omitempty"` // of the lab up
	Variant            labkit.Variant
	Profile            labkit.Profile
	Seed               uint64
	Keep               bool
	Timeout            time.Duration
	Bins               *labkit.Binaries
	// Sweep is not nil if the run is a kill test, with or without a kill.
	Sweep *sweepPlan `json:",omitempty"`
}

type sweepPlan struct{ Kills []sweep.Kill }

// Answer is the outcome of a run, and what a kill test asks for besides.
type Answer struct {
	labkit.Outcome
	// Judged is the verdict of the history. Outcome.Verdict is what is left of it after all: that of
	// an interrupted run, or of one that left something behind, is inconclusive.
	Judged labkit.Verdict
	// Again is the verdict of the saved history, judged again by another process.
	Again labkit.Verdict `json:",omitempty"`
	// Report is what a kill test saw and did.
	Report sweep.Report
}

// couldNot is the answer where there is none.
func couldNot(format string, a ...any) Answer {
	return Answer{Outcome: labkit.InconclusiveBecause(format, a...), Judged: labkit.Inconclusive}
}

// day is a time as Outcome.Date has it.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// runVariantOf runs a variant in a machine. Its folder stays, see tidy.
func runVariantOf(ctx context.Context, l *labkit.Lab, req request, commit string, w io.Writer) Answer {
	began := time.Now()
	a, cpu := runMachine(ctx, req, w)
	a.Lab, a.Variant, a.Profile, a.Seed, a.Expected = l.Name, req.Variant, string(req.Profile), req.Seed, l.Expected(req.Variant)
	a.Commit, a.Date = commit, day(began)
	a.Seconds, a.CPUSeconds = time.Since(began).Round(100*time.Millisecond).Seconds(), cpu.Round(100*time.Millisecond).Seconds()
	if r, err := filepath.Rel(req.Root, req.Dir); err == nil {
		a.Artefacts = r
	}
	return a
}

// tidy removes the folder of a run that answered as expected, and what is large of others.
func tidy(out *labkit.Outcome, req request) error {
	if req.Keep {
		return nil
	}
	if !out.AsExpected() {
		dropBulk(req.Dir)
		return nil
	}
	out.Artefacts = ""
	return os.RemoveAll(req.Dir)
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

// runMachine starts a machine for one variant, waits, and checks from the
// outside that nothing is left. Whatever goes wrong is Inconclusive. The time is that of the
// processors, of all that ran in the machine.
func runMachine(ctx context.Context, req request, out io.Writer) (Answer, time.Duration) {
	b, err := json.Marshal(req)
	if err != nil {
		return couldNot("%v", err), 0
	}
	if err := os.MkdirAll(req.Dir, 0o755); err != nil {
		return couldNot("%v", err), 0
	}
	file := filepath.Join(req.Dir, "request.json")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return couldNot("%v", err), 0
	}
	cmd := machine.Command(req.ID, InnerCommand, file)
	cmd.Stdout, cmd.Stderr = out, out
	if err := process.StartCmd(cmd, ""); err != nil {
		return couldNot("make the machine's namespaces: %v", err), 0
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
	res := couldNot("the lab's process ended without an answer: %s", process.DescribeExit(ended))
	if b, err := os.ReadFile(filepath.Join(req.Dir, "result.json")); err == nil {
		var r Answer
		if err := json.Unmarshal(b, &r); err != nil {
			return couldNot("result.json: %v", err), 0
		}
		res = r
	}
	// A machine that could not clean up took its namespaces with it, but not
	// its cgroups. That they were left is in its answer.
	_ = machine.RemoveCgroups(context.Background(), machine.Cgroup(req.ID))
	if leaks := machine.Leaks(context.Background(), req.Dir, req.ID); len(leaks) > 0 {
		res.Why = fmt.Sprintf("left behind outside the machine: %s (answered %s: %s)", machine.Few(leaks), res.Verdict, res.Why)
		res.Verdict = labkit.Inconclusive
	}
	return res, cpu
}
