// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/internal/exit"
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

// audit judges the audit log: the findings about the controller manager. The
// judge is the program that operators run, as it is on disk.
func (l *lab) audit(ctx context.Context) ([]auditResult, error) {
	if !hasAudit(l.server) {
		return nil, nil
	}
	program := filepath.Join(l.e.Root, "_output", "bin", "kubectl-holdfast")
	if _, err := os.Stat(program); err != nil {
		return nil, exit.Preconditionf("%v: run make kubectl-holdfast", err)
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
		return nil, fmt.Errorf("%s: %v: %v\n%s", cmd, runErr, err, errs.Bytes())
	}
	// The last line may be half written.
	if len(summary.Unread) > 0 || summary.BadLines > 1 || summary.BadLines == 0 && runErr != nil {
		return nil, fmt.Errorf("%s: %v\n%s", cmd, runErr, errs.Bytes())
	}
	if summary.Restarts < l.restarts {
		return nil, fmt.Errorf("the audit log has %d restarts of watches, expected at least %d", summary.Restarts, l.restarts)
	}
	var found []auditResult
	for _, r := range summary.Results {
		ours := r.User == "system:kube-controller-manager" || r.User == "rvcount" || strings.HasPrefix(r.User, "system:serviceaccount:kube-system:")
		if ours && r.count("back")+r.count("stale") > 0 {
			found = append(found, r)
		}
	}
	return found, nil
}

// auditAll judges the log of the whole run, without the time when the gate was off.
func (l *lab) auditAll(ctx context.Context) error {
	found, err := l.audit(ctx)
	if err != nil {
		return err
	}
	for _, r := range found {
		for _, f := range r.Findings {
			if f.proof() && (f.Time.Before(l.offFrom) || f.Time.After(l.offTo)) {
				return wrong{fmt.Errorf("a watch of %s restarted from the past at %s: %+v", r.Resource, f.Time.Format(time.RFC3339), f)}
			}
		}
	}
	return nil
}
