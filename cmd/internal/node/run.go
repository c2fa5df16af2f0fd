// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"holdfast/cmd/internal/finding"
)

// show prints the check's rows, or findings with the sum before them.
type show func(rows []row, findings []finding.Finding, sum string) error

// run is node swap, or node back.
func run(ctx context.Context, h *Host, o Options, back bool, log io.Writer, print show) error {
	if !o.DryRun {
		l, err := lock(h)
		if errors.Is(err, errLocked) {
			return err
		}
		if err != nil {
			return print(nil, []finding.Finding{finding.Of("HF504", h.Lib, err.Error(), "free some space, or name another folder with --keep-in")}, untouched)
		}
		defer l.Close()
	}
	m, err := look(ctx, h, o, log)
	if err != nil {
		return err
	}
	if m.st.Swap.unfinished() && !o.DryRun {
		if err := m.recover(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if m, err = look(ctx, h, o, log); err != nil {
			return err
		}
	}
	file := o.New
	if back {
		if file, err = m.original(); err != nil {
			m.found("kept kubelet", "HF505", "", err.Error(), "drain the node, and install the old kubelet from its package")
			return print(m.rows, m.findings(), untouched)
		}
	}
	m.judge(ctx, file, back)
	if m.stops() {
		return print(m.rows, m.findings(), untouched)
	}
	if o.DryRun {
		return print(m.rows, m.findings(), "dry run: "+untouched)
	}
	var original *kept
	if !back {
		if original, err = m.keep(ctx); err != nil {
			m.found("kept kubelet", "HF504", "", err.Error(), "free some space, or name another folder with --keep-in")
			return print(m.rows, m.findings(), untouched)
		}
	}
	findings, err := m.swapTo(ctx, back, original)
	if err != nil {
		return err
	}
	return print(nil, findings, m.result)
}

const untouched = "nothing was changed"

// original is the kept kubelet's file, if it is still what it was.
func (m *machine) original() (string, error) {
	k := m.st.Original
	if k == nil {
		return "", fmt.Errorf("no kubelet is saved in %s: the running kubelet was not swapped in by node swap", m.h.Lib)
	}
	s, err := sum(k.file())
	if err != nil {
		return "", err
	}
	if s != k.Sum {
		return "", fmt.Errorf("%s is not the file that was saved: its SHA-256 is %s, not %s", k.file(), s[:12], k.Sum[:12])
	}
	return k.file(), nil
}

// keep keeps the kubelet before Holdfast: the program, or what an earlier way of swapping left
// beside it. nil: there is nothing to keep, or it is kept already.
func (m *machine) keep(ctx context.Context) (*kept, error) {
	file, p := m.path, m.old
	if p.version.holdfast {
		p = nil
		for _, suffix := range []string{".before-holdfast", ".stock"} {
			f := m.path + suffix
			if m.st.Original != nil || !exists(f) {
				continue
			}
			if q, err := m.program(ctx, f); err == nil && !q.version.holdfast {
				m.say("%s is kept as the kubelet before Holdfast", f)
				file, p = f, q
				break
			}
		}
	}
	if p == nil {
		return nil, nil
	}
	k := kept{Release: p.version.text, Sum: p.sum, RootDir: m.line.rootDir(), Line: m.line, Time: time.Now().UTC()}
	var files, envFiles []string
	if m.unit != nil {
		files, envFiles = m.unit.files, m.unit.envFiles
	}
	return keep(m.h, file, k, files, envFiles)
}
