// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/node"
)

// job is the swap that the unit on the node does, or did last: KEEP-IN/fleet/job.json. The agent
// writes it before it starts the unit, the unit when it ends.
type job struct {
	Version int    `json:"version"` // 1
	Target  string `json:"target"`
	Attempt int    `json:"attempt"`
	// Unit is the kubelet's, New the kubelet to swap in, "" for the way back.
	Unit   string        `json:"unit"`
	New    string        `json:"new,omitempty"`
	Settle time.Duration `json:"settle"` // less than 0: by the number of pods
	FailOn string        `json:"failOn"`
	// Namespace is the agents'.
	Namespace string    `json:"namespace,omitempty"`
	Phase     string    `json:"phase"`
	Began     time.Time `json:"began"`
	// Why is why it failed, Containers one line about them.
	Why        string `json:"why,omitempty"`
	Containers string `json:"containers,omitempty"`
}

// The phases of a job.
const (
	jobRunning = "running" // or its end was not written: the node was rebooted
	jobDone    = "done"
	jobFailed  = "failed"
)

func (j *job) of(t target) bool { return j.Target == t.name && j.Attempt == t.attempt }

func fleetDir(lib string) string { return filepath.Join(lib, "fleet") }

func jobFile(lib string) string { return filepath.Join(fleetDir(lib), "job.json") }

// readJob returns an empty job if there was none.
func readJob(lib string) (*job, error) {
	j := &job{}
	b, err := os.ReadFile(jobFile(lib))
	if os.IsNotExist(err) {
		return j, nil
	}
	if err == nil {
		err = json.Unmarshal(b, j)
	}
	if err == nil && j.Version != 1 {
		err = fmt.Errorf("version %d was written by a later program: use the image of that one", j.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", jobFile(lib), err)
	}
	return j, nil
}

func (j *job) write(lib string) error {
	j.Version = 1
	b, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(jobFile(lib), append(b, '\n'), 0o600)
}

// swapper is node.Local.
type swapper interface {
	Check(ctx context.Context, file string) (node.Checked, error)
	Swap(ctx context.Context, file string, log io.Writer) ([]finding.Finding, string, error)
}

// maxWhy bounds what a job keeps of its findings.
const maxWhy = 2000

// run does the job and writes how it ended. A run that is killed is run again by systemd, or by the
// agent after a reboot; node swap then first starts the kubelet from before.
func (j *job) run(ctx context.Context, lib string, s swapper, log io.Writer) error {
	if j.Phase != jobRunning {
		return nil
	}
	if err := j.do(ctx, s, log); err != nil {
		j.Phase, j.Why = jobFailed, bounded(err.Error(), maxWhy)
	} else {
		j.Phase = jobDone
	}
	return j.write(lib)
}

func (j *job) do(ctx context.Context, s swapper, log io.Writer) error {
	failOn, err := finding.ParseFailOn(j.FailOn)
	if err != nil {
		return err
	}
	if j.New == "" {
		// The kubelet before Holdfast is kept by the swap. One that was never swapped is that kubelet.
		c, err := s.Check(ctx, "")
		if err != nil {
			return err
		}
		if c.Kept == "" && c.Now != nil && !c.Now.Holdfast {
			j.Containers = "no Holdfast was swapped in: nothing to do"
			return nil
		}
	}
	findings, sum, err := s.Swap(ctx, j.New, log)
	j.Containers = sum
	if err != nil {
		return err
	}
	// An agent that died meanwhile runs again, which says nothing about the swap.
	findings = slices.DeleteFunc(findings, j.ofAgent)
	if err := finding.Err(findings, failOn); err != nil {
		var says []string
		finding.Sort(findings)
		for _, f := range findings {
			says = append(says, one(f))
		}
		return fmt.Errorf("%s", strings.Join(append(says, sum), "; "))
	}
	return nil
}

// ofAgent says whether a finding is that the container of an agent is another one.
func (j *job) ofAgent(f finding.Finding) bool {
	return f.Code == "HF514" && strings.HasPrefix(f.Object, j.Namespace+"/"+name+"-") && strings.HasSuffix(f.Object, " "+container)
}

// one is a finding as a line.
func one(f finding.Finding) string {
	s := fmt.Sprintf("%s %s %s: %s", f.Level, f.Code, f.Object, f.Text)
	if f.Remedy != "" {
		s += " -> " + f.Remedy
	}
	return finding.Clean(s)
}

func bounded(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
