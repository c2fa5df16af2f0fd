// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/node"
)

// fakeSwap is node.Local.
type fakeSwap struct {
	checked  node.Checked
	files    []string
	findings []finding.Finding
	err      error
	killed   bool
}

func (f *fakeSwap) Check(context.Context, string) (node.Checked, error) { return f.checked, nil }

func (f *fakeSwap) Swap(_ context.Context, file string, _ io.Writer) ([]finding.Finding, string, error) {
	f.files = append(f.files, file)
	if f.killed {
		panic(killed{"swap"})
	}
	return f.findings, "kept 5, recreated 0", f.err
}

func runJob(t *testing.T, lib string, f *fakeSwap) *job {
	t.Helper()
	j, err := readJob(lib)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if r := recover(); r != nil && !f.killed {
				panic(r)
			}
		}()
		if err := j.run(t.Context(), lib, f, io.Discard); err != nil {
			t.Fatal(err)
		}
	}()
	if j, err = readJob(lib); err != nil {
		t.Fatal(err)
	}
	return j
}

func newJob(t *testing.T, change func(*job)) string {
	t.Helper()
	lib := t.TempDir()
	if err := os.MkdirAll(fleetDir(lib), 0o700); err != nil {
		t.Fatal(err)
	}
	j := &job{Target: "holdfast-2", Attempt: 1, New: "/x/kubelet", FailOn: "new", Phase: jobRunning}
	if change != nil {
		change(j)
	}
	if err := j.write(lib); err != nil {
		t.Fatal(err)
	}
	return lib
}

// TestJob: how each end of a swap is written.
func TestJob(t *testing.T) {
	recreated := finding.Of("HF514", "default/a app", "another container runs", "")
	agent := finding.Of("HF514", "fleet/holdfast-fleet-x agent", "another container runs", "")
	in := func(namespace string) func(*job) { return func(j *job) { j.Namespace = namespace } }
	warn := finding.Of("HF515", "predecessor", "it names another", "")
	stop := finding.Of("HF101", "flags", "it does not take --x", "take it out")
	for name, c := range map[string]struct {
		change     func(*job)
		swap       fakeSwap
		phase, why string
	}{
		"done":      {nil, fakeSwap{findings: []finding.Finding{warn}}, jobDone, ""},
		"recreated": {nil, fakeSwap{findings: []finding.Finding{recreated}}, jobFailed, "new HF514 default/a app: another container runs; kept 5"},
		"an agent":  {in("fleet"), fakeSwap{findings: []finding.Finding{agent}}, jobDone, ""},
		"no agent":  {in("other"), fakeSwap{findings: []finding.Finding{agent}}, jobFailed, "HF514 fleet/holdfast-fleet-x"},
		"both":      {in("fleet"), fakeSwap{findings: []finding.Finding{agent, recreated}}, jobFailed, "new HF514 default/a app"},
		"told":      {func(j *job) { j.FailOn = "STOP" }, fakeSwap{findings: []finding.Finding{recreated}}, jobDone, ""},
		"stop":      {nil, fakeSwap{findings: []finding.Finding{warn, stop}}, jobFailed, "STOP HF101 flags: it does not take --x -> take it out; warn HF515"},
		"error":     {nil, fakeSwap{err: errors.New("another node swap is running")}, jobFailed, "another node swap is running"},
		"long":      {nil, fakeSwap{err: errors.New(strings.Repeat("x", 1e6))}, jobFailed, "xxx"},
		"fail-on":   {func(j *job) { j.FailOn = "some" }, fakeSwap{}, jobFailed, "--fail-on"},
	} {
		t.Run(name, func(t *testing.T) {
			lib := newJob(t, c.change)
			j := runJob(t, lib, &c.swap)
			if j.Phase != c.phase || !strings.Contains(j.Why, c.why) || len(j.Why) > maxWhy+10 || (j.Why == "") != (c.why == "") {
				t.Errorf("%s: %q", j.Phase, j.Why)
			}
			// A job that has ended is not done again.
			n := len(c.swap.files)
			if runJob(t, lib, &c.swap); len(c.swap.files) != n {
				t.Error("it was done again")
			}
		})
	}
}

// TestJobKilled: a job that is killed is done again by the next run.
func TestJobKilled(t *testing.T) {
	lib := newJob(t, nil)
	f := &fakeSwap{killed: true}
	if j := runJob(t, lib, f); j.Phase != jobRunning {
		t.Fatalf("%+v", j)
	}
	f.killed = false
	if j := runJob(t, lib, f); j.Phase != jobDone || len(f.files) != 2 {
		t.Errorf("%+v, %d runs", j, len(f.files))
	}
}

// TestJobBack: back is node back, but for a node on which no Holdfast was.
func TestJobBack(t *testing.T) {
	back := func(j *job) { j.Target, j.New = original, "" }
	f := &fakeSwap{checked: node.Checked{Now: kubeletOf(newSum), Kept: oldSum}}
	if j := runJob(t, newJob(t, back), f); j.Phase != jobDone || len(f.files) != 1 || f.files[0] != "" {
		t.Errorf("%+v %q", j, f.files)
	}
	f = &fakeSwap{checked: node.Checked{Now: kubeletOf(oldSum)}}
	if j := runJob(t, newJob(t, back), f); j.Phase != jobDone || len(f.files) != 0 {
		t.Errorf("%+v %q", j, f.files)
	}
}

// TestJobFile: no file is no job, and what cannot be read is an error that names the file.
func TestJobFile(t *testing.T) {
	lib := newJob(t, nil)
	if j, err := readJob(t.TempDir()); err != nil || j.Phase != "" {
		t.Errorf("%+v %v", j, err)
	}
	for _, text := range []string{"", "{", `{"version":2}`, "[]"} {
		if err := os.WriteFile(jobFile(lib), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readJob(lib); err == nil || !strings.Contains(err.Error(), jobFile(lib)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestUnitText: nothing in it changes from job to job, for systemd does not read it again.
func TestUnitText(t *testing.T) {
	const want = "[Unit]\nDescription=Holdfast: swap of the kubelet\nDefaultDependencies=no\n\n[Service]\n" +
		"ExecStart=/usr/lib/holdfast/fleet/kubectl-holdfast fleet on-host swap --keep-in=/usr/lib/holdfast\nRestart=on-abnormal\nRestartSec=1\nStartLimitInterval=0\n"
	if got := unitText("/usr/lib/holdfast/fleet/kubectl-holdfast", "/usr/lib/holdfast"); got != want {
		t.Errorf("%s", got)
	}
}

// A unit that ends while the agent looks has not been interrupted.
func TestLookAsTheUnitEnds(t *testing.T) {
	lib := newJob(t, nil)
	bin := t.TempDir()
	script := "#!/bin/sh\nsed -i 's/\"running\"/\"done\"/' '" + jobFile(lib) + "'\nprintf 'ActiveState=inactive\\nMainPID=0\\nNRestarts=0\\n'\n"
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	l, err := (&onHost{lib: lib, unit: "kubelet.service"}).look(t.Context(), node.Running{})
	if err != nil || l.UnitActive || l.Job.Phase != jobDone {
		t.Errorf("%+v, %v", l, err)
	}
}
