// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
)

func (m *machine) command(ctx context.Context, bound time.Duration, shell string, systemctl ...string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	name, args := "systemctl", systemctl
	if !m.o.systemd() {
		name, args = "sh", []string{"-c", shell}
	}
	if out, err := m.h.Run(ctx, name, args...); err != nil {
		if !m.o.systemd() {
			return fmt.Errorf("%s command: %w", systemctl[0], err) // what it prints may be anything
		}
		return fmt.Errorf("systemctl %s: %w %s", strings.Join(args, " "), err, finding.Clean(strings.TrimSpace(out)))
	}
	return nil
}

// stop stops the kubelet within stopTimeout.
func (m *machine) stop(ctx context.Context) error {
	end := time.Now().Add(stopTimeout)
	if err := m.command(ctx, stopTimeout, m.o.StopCommand, "stop", m.o.Unit); err != nil {
		return err
	}
	for {
		if pid, ok := m.process(ctx); ok && pid == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the kubelet did not stop within %s", stopTimeout)
		}
		time.Sleep(m.h.Poll)
	}
}

// kill ends a kubelet that does not stop.
func (m *machine) kill(ctx context.Context) {
	if m.o.systemd() {
		if err := m.command(ctx, unitTimeout, "", "kill", "-s", "KILL", m.o.Unit); err != nil {
			m.say("%v", err)
		}
	}
}

func (m *machine) start(ctx context.Context) error {
	if m.o.systemd() {
		// A unit that failed often is not started any more.
		_ = m.command(ctx, unitTimeout, "", "reset-failed", m.o.Unit)
	}
	return m.command(ctx, stopTimeout, m.o.StartCommand, "start", m.o.Unit)
}

// process is the kubelet's process now, 0 if there is none; not ok if that cannot be told.
func (m *machine) process(ctx context.Context) (pid int, ok bool) {
	if !m.o.systemd() {
		return m.find(), true
	}
	p, err := properties(ctx, m.h, m.o.Unit, "MainPID")
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(p["MainPID"])
	return pid, err == nil
}

// wait waits until a kubelet runs that is the program, with the line, and answers /healthz. One
// that ends, or has another line, is an error at once.
func (m *machine) wait(ctx context.Context, line flags, v version) error {
	end := time.Now().Add(m.o.HealthTimeout)
	first, why := 0, errors.New("it has not started")
	for {
		pid, ok := m.process(ctx)
		switch {
		case !ok:
			why = errors.New("systemctl show does not answer")
		case first != 0 && pid != first:
			return fmt.Errorf("it ended soon after its start")
		case pid != 0:
			running, err := os.Stat(filepath.Join(m.h.Proc, strconv.Itoa(pid), "exe"))
			file, err2 := os.Stat(m.path)
			args, err3 := cmdline(m.h, pid)
			if err := errors.Join(err, err2, err3); err != nil {
				why = err
				break
			}
			if !os.SameFile(running, file) {
				why = fmt.Errorf("process %d is another program", pid) // systemd has not executed it yet
				break
			}
			first = pid
			if flags(args[1:]).standalone(v) {
				return errors.New("it runs standalone")
			}
			if names := differ(args[1:], line); len(names) > 0 {
				return fmt.Errorf("it runs with other %s than the unit has", strings.Join(names, ", "))
			}
			if why = m.healthz(ctx, line); why == nil {
				m.pid = pid
				return nil
			}
		case m.o.systemd() && first == 0:
			if p, err := properties(ctx, m.h, m.o.Unit, "ActiveState", "SubState"); err == nil && (p["ActiveState"] == "failed" || p["SubState"] == "auto-restart") {
				return fmt.Errorf("it exited at startup")
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("it is not healthy after %s: %w", m.o.HealthTimeout, why)
		}
		time.Sleep(m.h.Poll)
	}
}

// local is the URL of one of the kubelet's ports, "" if the port is off.
func local(line flags, address, addressDefault, port, portDefault, path string) string {
	host, p := line.or(address, addressDefault), line.or(port, portDefault)
	if p == "0" {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, p) + path
}

func (m *machine) healthz(ctx context.Context, line flags) error {
	url := local(line, "healthz-bind-address", "127.0.0.1", "healthz-port", "10248", "/healthz")
	if url == "" {
		return nil // the unit has switched it off
	}
	b, err := m.h.Get(ctx, "", url)
	if err == nil && strings.TrimSpace(string(b)) != "ok" {
		err = errors.New("/healthz is not ok")
	}
	return err
}
