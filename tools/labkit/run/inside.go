// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
)

// InnerCommand is the hidden command that runs one variant inside its machine;
// its only argument goes to Inner.
const InnerCommand = "lab-run-in-machine"

// Inner runs the variant that file describes, of one of these labs, and writes result.json.
func Inner(file string, all []labkit.Lab) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var req request
	if err := json.Unmarshal(b, &req); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	l, err := req.lab(all)
	if err != nil {
		return err
	}
	sup, err := process.NewSupervisor(req.Dir, req.ID)
	if err != nil {
		return err
	}
	j, err := journal.New(req.Dir, history.Begin{Lab: l.Name, Variant: string(req.Variant), Profile: string(req.Profile), Seed: req.Seed}, os.Stdout)
	if err != nil {
		return err
	}
	defer j.Close()
	e := &labkit.Env{Starter: node.NewStarter(kube.NewStarter(machine.New(sup, j)), req.Root), Lab: l, Variant: req.Variant,
		Profile: req.Profile, Seed: req.Seed, Rand: labkit.NewRand(l.Name, req.Seed), Bins: req.Bins}

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if req.Sweep != nil {
		e.Sweep = sweep.New(req.Sweep.Kills, sup, j)
	}
	a := runVariant(ctx, e, req)
	a.Numbers = append(a.Numbers, j.Numbers()...)
	if r := e.Sweep.End(ctx); r != nil {
		a.Report = *r
	}
	b, err = json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(req.Dir, "result.json"), b, 0o644)
}

// lab is the one to run: one of all, or the one that keeps a cluster up.
func (r request) lab(all []labkit.Lab) (*labkit.Lab, error) {
	if r.Up != nil {
		return r.Up.lab(), nil
	}
	i := slices.IndexFunc(all, func(l labkit.Lab) bool { return l.Name == r.Lab })
	if i < 0 {
		return nil, fmt.Errorf("this program has no lab %q", r.Lab)
	}
	return all[i].With(r.Gates, r.Fixes), nil
}

// runVariant is Lab.Drive with everything around it.
func runVariant(signalled context.Context, e *labkit.Env, req request) (res Answer) {
	ctx, cancel := context.WithTimeoutCause(signalled, req.Timeout, fmt.Errorf("the lab's time limit of %v is exceeded", req.Timeout))
	defer cancel()
	res.Outcome = guard(ctx, e.Lab, func() (labkit.Outcome, error) {
		if err := e.SetUp(ctx); err != nil {
			return labkit.Outcome{}, err
		}
		sayVersions(ctx, e)
		return e.Lab.Drive(ctx, e)
	})
	res.Judged = res.Verdict
	e.Sweep.End(ctx) // before anything is stopped
	if signalled.Err() != nil && req.Up == nil {
		res.Outcome = labkit.InconclusiveBecause("interrupted")
	}
	e.Step("answer: %s: %s", res.Verdict, res.FirstLine())
	clean := context.WithoutCancel(ctx)
	if res.Verdict != e.Lab.Expected(e.Variant) || req.Keep {
		e.Dump(clean, e.Path("dump"))
	}
	clean, cancelClean := context.WithTimeout(clean, 2*time.Minute)
	defer cancelClean()
	stop := e.Stop(clean)
	leaks := e.LeaksInside(clean)
	res.Facts = append(res.Facts, e.Facts()...)
	if stop != nil {
		e.Logf("stop: %v", stop)
	}
	if len(leaks) > 0 {
		why := fmt.Sprintf("left behind: %s (answered %s: %s)", machine.Few(leaks), res.Verdict, res.Why)
		if stop != nil {
			why += "\n" + stop.Error()
		}
		res.Verdict, res.Why = labkit.Inconclusive, why
		e.Step("%s", why)
	} else {
		e.Step("stopped; no process, mount, network device or cgroup is left")
	}
	return res
}

// sayVersions prints what the programs under test call themselves, so that a
// report shows what it is about.
func sayVersions(ctx context.Context, e *labkit.Env) {
	for _, b := range e.Lab.NeedsIn(e.Profile) {
		if b.Variant != labkit.UnderTest {
			continue
		}
		c, cancel := context.WithTimeout(ctx, 10*time.Second)
		out, err := exec.CommandContext(c, e.Program(b).Path, "--version").Output()
		cancel()
		v, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err != nil {
			v = err.Error()
		}
		e.Step("under test: %s: %s", b.Name, v)
	}
}

// guard turns errors, panics and nonsense into Inconclusive.
func guard(ctx context.Context, l *labkit.Lab, f func() (labkit.Outcome, error)) (res labkit.Outcome) {
	defer func() {
		if r := recover(); r != nil {
			res = labkit.InconclusiveBecause("panic: %v\n%s", r, debug.Stack())
		}
	}()
	res, err := f()
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		return labkit.InconclusiveBecause("%v: %v", context.Cause(ctx), err)
	case err != nil:
		return labkit.InconclusiveBecause("%v", err)
	case !slices.Contains(l.Answers(), res.Verdict):
		return labkit.InconclusiveBecause("the lab answered %q, which is no verdict", res.Verdict)
	}
	return res
}
