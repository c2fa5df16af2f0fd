// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/node"
)

// host is the node that the agent runs on.
type host interface {
	// check looks at the node as node check does.
	check(ctx context.Context) (node.Checked, error)
	// look sees what runs. before is the last answer. An error says that it could not be asked.
	look(ctx context.Context, before node.Running) (looked, error)
	// start starts the unit that swaps.
	start(ctx context.Context, t target) error
}

// hostPrograms runs this program in the namespaces of process 1.
type hostPrograms struct {
	lib, unit string
	namespace string // the agent's
	settle    time.Duration
	failOn    finding.FailOn
}

// The bounds of what runs on the host. A start copies the kubelet, 110 MB.
const (
	lookTimeout  = 20 * time.Second
	startTimeout = 3 * time.Minute
	maxOnHost    = 16 << 20
)

// limited keeps the first bytes that are written to it and drops the others.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), maxOnHost-l.Len())])
	return len(p), nil
}

// run runs a command of onhost.go and decodes its answer into v, if that is not nil.
func (h *hostPrograms) run(ctx context.Context, bound time.Duration, v any, verb string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	args = append([]string{"fleet", "on-host", verb, enterFlag, "--keep-in=" + h.lib, "--unit=" + h.unit, fmt.Sprintf("--agent=%d", os.Getpid())}, args...)
	var out, says limited
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &says, time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s on the node did not end within %s", verb, bound)
	case err != nil:
		return errors.New(finding.Clean(bounded(strings.TrimSpace(says.String()), maxWhy)))
	case v == nil:
		return nil
	}
	return json.Unmarshal(out.Bytes(), v)
}

func (h *hostPrograms) check(ctx context.Context) (c node.Checked, err error) {
	return c, h.run(ctx, lookTimeout+startTimeout, &c, "check")
}

func (h *hostPrograms) look(ctx context.Context, before node.Running) (l looked, err error) {
	return l, h.run(ctx, lookTimeout, &l, "look", fmt.Sprintf("--pid=%d", before.PID), fmt.Sprintf("--started=%d", before.Started), "--sum="+before.Sum)
}

func (h *hostPrograms) start(ctx context.Context, t target) error {
	return h.run(ctx, startTimeout, nil, "start", "--target="+t.name, fmt.Sprintf("--attempt=%d", t.attempt), "--settle="+h.settle.String(), "--fail-on="+h.failOn.String(), "--namespace="+h.namespace)
}
