// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"holdfast/tools/labkit"
)

// coarseLag is how long a write may take to reach a watcher in the reading of
// audit-rv, where the log does not tell when a request was completed (1.8).
const coarseLag = 5 * time.Second

// auditFinding is a watch that restarted from the past: what kubectl-holdfast
// audit-rv -o json prints.
type auditFinding struct {
	Kind   string    `json:"kind"`
	Time   time.Time `json:"time"`
	From   string    `json:"from"`
	Before string    `json:"before"`
	Missed string    `json:"missed"`
}

// proof says whether the finding is one, and no hint.
func (f auditFinding) proof() bool { return f.Kind == "back" || f.Kind == "stale" }

// auditResult is what was found about one kind of watch of one client.
type auditResult struct {
	User     string         `json:"user"`
	Resource string         `json:"resource"`
	Restarts int            `json:"restarts"`
	Findings []auditFinding `json:"findings"`
}

func (r auditResult) count(kind string) int {
	n := 0
	for _, f := range r.Findings {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// audit reads the audit log by the program that operators run, as it is on disk, and
// records its findings about the controller manager.
func (l *lab) audit(ctx context.Context, phase string) error {
	o := audited{Phase: phase, Has: hasAudit(l.server), OffFrom: l.offFrom, OffTo: l.offTo, Want: l.restarts}
	if !o.Has {
		l.e.Record(o)
		return nil
	}
	program, err := l.e.Holdfast()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "audit-rv", "-o", "json", l.c.APIServer.AuditLog)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	runErr := cmd.Run()
	var summary struct {
		Events, Restarts, BadLines int
		Unread                     []string
		Results                    []auditResult
	}
	if err := json.Unmarshal(out.Bytes(), &summary); err != nil {
		return fmt.Errorf("%s: %v: %v\n%s", cmd, runErr, err, errs.Bytes())
	}
	// The last line may be half written.
	if len(summary.Unread) > 0 || summary.BadLines > 1 || summary.BadLines == 0 && runErr != nil {
		return fmt.Errorf("%s: %v\n%s", cmd, runErr, errs.Bytes())
	}
	o.Restarts = summary.Restarts
	for _, r := range summary.Results {
		ours := r.User == "system:kube-controller-manager" || r.User == "rvcount" || strings.HasPrefix(r.User, "system:serviceaccount:kube-system:")
		if ours && r.count("back")+r.count("stale") > 0 {
			o.Found = append(o.Found, r)
			l.shown = true
		}
	}
	l.e.Record(o)
	return nil
}

// auditIncident reads the log of the incident. What has shown by then is enough.
func (l *lab) auditIncident(ctx context.Context) error {
	if err := l.audit(ctx, phaseIncident); err != nil {
		return err
	}
	if l.shown {
		return labkit.Enough
	}
	return nil
}

// auditAll reads the log of the whole run.
func (l *lab) auditAll(ctx context.Context) error { return l.audit(ctx, phaseAll) }
