// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
)

func startEtcd(ctx context.Context, e *labkit.Env) (*process.Proc, error) {
	return e.Start(ctx, process.Process{Name: "etcd", Component: sweep.Etcd, Path: process.Self(), Env: []string{sleeperEnv + "=1"}})
}

// sweptLab has a component for a second, and answers absent if that always ran.
func sweptLab(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
	p, err := startEtcd(ctx, e)
	if err != nil {
		return labkit.Outcome{}, err
	}
	time.Sleep(time.Second)
	return labkit.AbsentBecause("it is there"), process.AllAlive(p)
}

// fooledLab takes what a kill does for the incident.
func fooledLab(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
	p, err := startEtcd(ctx, e)
	if err != nil {
		return labkit.Outcome{}, err
	}
	was := p.PID()
	time.Sleep(time.Second)
	if p.PID() != was {
		return labkit.ReproducedBecause("it is another"), nil
	}
	return labkit.AbsentBecause("it is the same"), nil
}

// runSwept is what Sweep does once the preconditions are met.
func runSwept(t *testing.T, name string, kills ...sweep.Kill) Answer {
	t.Helper()
	id, err := newID()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := t.TempDir()
	return runVariantOf(context.Background(), testLab(t, name), request{Lab: name, ID: id, Dir: filepath.Join(root, "run"), Root: root, Variant: labkit.Ours, Profile: labkit.Short, Seed: 1,
		Timeout: 10 * time.Second, Bins: &labkit.Binaries{}, Sweep: &sweepPlan{kills}}, "", &out)
}

// TestSweep: a run without a kill tells its components and its length, one with a kill what was
// killed; the verdict is the lab's.
func TestSweep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2, which the first lab installs")
	}
	kill := sweep.Kill{Component: sweep.Etcd, Process: "etcd", At: 0.3, Pause: 0.2}
	for _, c := range []struct {
		lab     string
		kills   []sweep.Kill
		verdict labkit.Verdict
	}{
		{"t-swept", nil, labkit.Absent},
		{"t-swept", []sweep.Kill{kill}, labkit.Absent},
		{"t-fooled", nil, labkit.Absent},
		{"t-fooled", []sweep.Kill{kill}, labkit.Reproduced},
	} {
		a := runSwept(t, c.lab, c.kills...)
		if a.Verdict != c.verdict || a.Judged != c.verdict {
			t.Errorf("%s, %d kills: %s, judged %s: %s", c.lab, len(c.kills), a.Verdict, a.Judged, a.Why)
		}
		r := a.Report
		if len(r.Done) != len(c.kills) || len(r.Seen) != 1 || r.Seen[0].Process != "etcd" || r.Window < 0.9 {
			t.Errorf("%s, %d kills: %+v", c.lab, len(c.kills), r)
		}
	}
	if a := runSwept(t, "t-runaway"); a.Judged != labkit.Absent || a.Verdict != labkit.Inconclusive || !strings.Contains(a.Why, "left behind") {
		t.Errorf("%+v", a)
	}
}
