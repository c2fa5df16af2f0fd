// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/node"
)

// looked is what the agent sees of its node.
type looked struct {
	node.Running
	Job job `json:"job"`
	// UnitActive: the unit that does the job runs.
	UnitActive bool `json:"unitActive"`
}

// onHost is what the program does in the namespaces of process 1.
type onHost struct {
	lib, unit string
	// agent is the PID of the agent, from whose image files are copied.
	agent int
	// units is where systemd looks for units that are gone after a reboot.
	units string
}

func (h *onHost) local(settle time.Duration) node.Local {
	return node.NewLocal(h.lib, node.Options{Unit: h.unit, Settle: settle, HealthTimeout: 20 * time.Second})
}

// inImage is a file of the agent's image, "" if it is not there.
func (h *onHost) inImage(name string) string {
	file := fmt.Sprintf("/proc/%d/root/%s", h.agent, name)
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

func (h *onHost) check(ctx context.Context) (node.Checked, error) {
	return h.local(0).Check(ctx, h.inImage(kubelet))
}

func (h *onHost) look(ctx context.Context, before node.Running) (looked, error) {
	local, l := h.local(0), looked{}
	// The unit first: one that ends between the two has written its end.
	var err error
	if l.UnitActive, err = local.UnitActive(ctx, unitName); err != nil {
		return l, err
	}
	j, err := readJob(h.lib)
	if err != nil {
		return l, err
	}
	l.Job = *j
	l.Running, err = local.Running(ctx, before)
	return l, err
}

// start writes the job and starts the unit that does it.
func (h *onHost) start(ctx context.Context, j job) error {
	local := h.local(0)
	if active, err := local.UnitActive(ctx, unitName); err != nil || active {
		return errors.Join(err, errors.New(unitName+" already runs, or its state is not known"))
	}
	dir := fleetDir(h.lib)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self := filepath.Join(dir, program)
	if err := atomicfile.Copy(fmt.Sprintf("/proc/%d/exe", h.agent), self, 0o755); err != nil {
		return err
	}
	if j.Target != original {
		from := h.inImage(kubelet)
		if from == "" {
			return fmt.Errorf("the image has no file /%s", kubelet)
		}
		j.New = filepath.Join(dir, kubelet)
		if err := atomicfile.Copy(from, j.New, 0o755); err != nil {
			return err
		}
	}
	j.Unit, j.Phase, j.Began = h.unit, jobRunning, time.Now().UTC()
	if err := j.write(h.lib); err != nil {
		return err
	}
	if err := os.MkdirAll(h.units, 0o755); err != nil {
		return err
	}
	// Not by systemd-run: before systemd 230 a transient unit cannot be restarted. A unit in /run
	// that systemd has not loaded needs no daemon-reload, which would load the kubelet's unit anew.
	file, text := filepath.Join(h.units, unitName), unitText(self, h.lib)
	if old, err := os.ReadFile(file); err != nil || string(old) != text {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	_ = local.Systemctl(ctx, "reset-failed", unitName)
	return local.Systemctl(ctx, "start", "--no-block", unitName)
}

// unitText is the unit that does the job. It outlives the pod, and is started again if it is killed.
func unitText(self, lib string) string {
	return "[Unit]\nDescription=Holdfast: swap of the kubelet\nDefaultDependencies=no\n\n" +
		"[Service]\nExecStart=" + self + " fleet on-host swap --keep-in=" + lib + "\n" +
		"Restart=on-abnormal\nRestartSec=1\nStartLimitInterval=0\n"
}

// swap does the job that is written.
func (h *onHost) swap(ctx context.Context, log io.Writer) error {
	j, err := readJob(h.lib)
	if err != nil {
		return err
	}
	h.unit = j.Unit
	return j.run(ctx, h.lib, h.local(j.Settle), log)
}

// onHostCommand is what the agent runs on the node.
func onHostCommand() *cobra.Command {
	h := &onHost{units: "/run/systemd/system"}
	cmd := &cobra.Command{Use: "on-host", Hidden: true, Short: "What fleet agent runs in the namespaces of process 1", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return exit.Usagef("fleet agent and its unit run this") }}
	var goIn bool
	var before node.Running
	j := job{}
	sub := func(use string, do func(cmd *cobra.Command) (any, error)) *cobra.Command {
		c := &cobra.Command{Use: use, Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if goIn {
				return enter()
			}
			answer, err := do(cmd)
			if err != nil || answer == nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(answer)
		}}
		f := c.Flags()
		f.StringVar(&h.lib, "keep-in", node.DefaultLib, "")
		f.StringVar(&h.unit, "unit", "kubelet.service", "")
		f.IntVar(&h.agent, "agent", 0, "")
		f.BoolVar(&goIn, strings.TrimPrefix(enterFlag, "--"), false, "")
		cmd.AddCommand(c)
		return c
	}
	sub("check", func(cmd *cobra.Command) (any, error) { return h.check(cmd.Context()) })
	look := sub("look", func(cmd *cobra.Command) (any, error) { return h.look(cmd.Context(), before) })
	look.Flags().IntVar(&before.PID, "pid", 0, "")
	look.Flags().Int64Var(&before.Started, "started", 0, "")
	look.Flags().StringVar(&before.Sum, "sum", "", "")
	start := sub("start", func(cmd *cobra.Command) (any, error) { return nil, h.start(cmd.Context(), j) })
	start.Flags().StringVar(&j.Target, "target", "", "")
	start.Flags().IntVar(&j.Attempt, "attempt", 0, "")
	start.Flags().DurationVar(&j.Settle, "settle", 0, "")
	start.Flags().StringVar(&j.FailOn, "fail-on", "", "")
	start.Flags().StringVar(&j.Namespace, "namespace", "", "")
	sub("swap", func(cmd *cobra.Command) (any, error) { return nil, h.swap(cmd.Context(), cmd.ErrOrStderr()) })
	return cmd
}
