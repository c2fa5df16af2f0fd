// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"holdfast/cmd/internal/finding"
)

// Local is the kubelet of this machine for the program that swaps the kubelets of a fleet. It does
// what node check, swap and back do.
type Local struct {
	h *Host
	o Options
}

// NewLocal is the kubelet that a unit starts. lib is where the kept kubelet and the state are.
func NewLocal(lib string, o Options) Local {
	o.Unit = fullName(o.Unit)
	return Local{h: thisHost(lib), o: o}
}

// Kubelet is what is known of a kubelet's file.
type Kubelet struct {
	Release  string `json:"release"` // "v1.9.11+holdfast.2"
	Sum      string `json:"sha256"`
	Holdfast bool   `json:"holdfast"`
}

// Checked is what a check says of the machine.
type Checked struct {
	Findings []finding.Finding `json:"findings"`
	// Now is the file that the unit starts, New the one that was asked about. nil: it is no
	// kubelet that could be asked; the findings say why.
	Now *Kubelet `json:"now,omitempty"`
	New *Kubelet `json:"new,omitempty"`
	// Kept is the SHA-256 of the kept kubelet, "" if none is kept.
	Kept string `json:"kept,omitempty"`
}

func (p *program) kubelet() *Kubelet {
	if p == nil {
		return nil
	}
	return &Kubelet{Release: p.version.text, Sum: p.sum, Holdfast: p.version.holdfast}
}

// Check is node check. It changes nothing. file may be "".
func (l Local) Check(ctx context.Context, file string) (Checked, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	m, err := look(ctx, l.h, l.o, io.Discard)
	if err != nil {
		return Checked{}, err
	}
	m.judge(ctx, file, false)
	c := Checked{Findings: m.findings(), Now: m.old.kubelet(), New: m.new.kubelet()}
	if k := m.st.Original; k != nil {
		c.Kept = k.Sum
	}
	return c, nil
}

// Swap is node swap to a file, or node back if that is "". It returns what was found and one line
// about the containers. The error of a swap that could not be done says which kubelet runs.
func (l Local) Swap(ctx context.Context, file string, log io.Writer) (findings []finding.Finding, sum string, err error) {
	o := l.o
	o.New = file
	err = run(ctx, l.h, o, file == "", log, func(_ []row, f []finding.Finding, s string) error {
		findings, sum = f, s
		return nil
	})
	return findings, sum, err
}

// Running is the kubelet's process.
type Running struct {
	PID int `json:"pid"` // 0: there is none
	// Started is in seconds since 1970.
	Started int64 `json:"started,omitempty"`
	// Restarts is how often systemd started it again, "" where systemd does not count (before 235).
	Restarts string `json:"restarts,omitempty"`
	// Sum is the SHA-256 of the program that the process runs, whatever the file has become.
	Sum string `json:"sha256,omitempty"`
	// Ill is what is wrong with /healthz, or "".
	Ill string `json:"ill,omitempty"`
}

// Running looks at the process. before may be an earlier answer: the sum of the same process is
// taken from it. An error says that it could not be asked.
func (l Local) Running(ctx context.Context, before Running) (Running, error) {
	p, err := properties(ctx, l.h, l.o.Unit, "MainPID", "NRestarts")
	if err != nil {
		return Running{}, err
	}
	r := Running{Restarts: p["NRestarts"]}
	if r.PID, err = strconv.Atoi(p["MainPID"]); err != nil {
		return Running{}, fmt.Errorf("systemctl show %s names no process: %w", l.o.Unit, err)
	}
	if r.PID == 0 {
		return r, nil
	}
	r.Started = started(l.h, r.PID)
	args, err := cmdline(l.h, r.PID)
	if err != nil {
		return Running{}, err
	}
	if before.Sum != "" && before.PID == r.PID && before.Started == r.Started {
		r.Sum = before.Sum
	} else if r.Sum, err = sum(filepath.Join(l.h.Proc, strconv.Itoa(r.PID), "exe")); err != nil {
		return Running{}, err
	}
	m := &machine{h: l.h, o: l.o}
	if err := m.healthz(ctx, args[1:]); err != nil {
		r.Ill = err.Error()
	}
	return r, nil
}

// UnitActive tells whether a unit runs, or is about to.
func (l Local) UnitActive(ctx context.Context, unit string) (bool, error) {
	p, err := properties(ctx, l.h, unit, "ActiveState")
	switch p["ActiveState"] {
	case "active", "activating", "reloading", "deactivating":
		return true, err
	}
	return false, err
}

// Systemctl runs systemctl with these arguments.
func (l Local) Systemctl(ctx context.Context, args ...string) error {
	m := &machine{h: l.h, o: l.o}
	return m.command(ctx, stopTimeout, "", args...)
}
