// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process starts programs as data, watches their health and stops them.
package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// Process is a component as data. Only Name and Path are required.
type Process struct {
	// Name names the log file (<dir>/<name>.log) and must be unique in a run.
	Name string
	// Path is the program.
	Path string
	Args []string
	// Env is added to PATH, HOME, and the kit's own marker.
	Env []string
	// Dir is the working directory; empty: the run's directory.
	Dir string
	// HealthURL is polled until it answers 200; HealthTLS serves https URLs.
	HealthURL string
	HealthTLS *tls.Config
	// Health is polled instead of HealthURL if set; nil error means healthy.
	Health func(context.Context) error
	// StartTimeout bounds the wait for health (default 60 s), StopTimeout the
	// wait after StopSignal (defaults 15 s, SIGTERM) before SIGKILL.
	StartTimeout, StopTimeout time.Duration
	StopSignal                syscall.Signal
	// In runs the process there; nil: in the namespaces and cgroups of the caller.
	In Place
	// Cloneflags are the new namespaces that it gets, unix.CLONE_NEWNET and so on.
	Cloneflags uintptr
	// KeepGroup leaves other members of the process group alone at Stop.
	KeepGroup bool
	// Component is what it is of a cluster: etcd, kubelet and so on; "" for what is the
	// lab's own. A kill test kills components only.
	Component string
	// Before is called before each start, also of one that a kill test killed. It may be nil.
	Before func() error
}

// Place is where a process can run: a node, say.
type Place interface {
	// Join is the command line that runs path with args in the place.
	Join(path string, args []string) (string, []string)
	// PIDNamespace is the file of the place's PID namespace, "" for the caller's.
	PIDNamespace() string
}

// Proc is a started Process. One that a kill test killed is the same Proc when it is back.
type Proc struct {
	Spec    Process
	Pid     int // of the first start; see PID
	LogPath string
	Started time.Time // first

	in   *Supervisor
	done chan struct{}
	err  error // valid once done is closed
	life
}

// PID is that of the process now; 0 while a kill test has it down.
func (p *Proc) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Done is closed when the process has ended and does not come back by itself.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Alive says whether the process still runs, or comes back by itself.
func (p *Proc) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// AllAlive is nil while all of these run (nil ones are left out): a lab on dead
// components proves nothing. The error names one that has ended.
func AllAlive(procs ...*Proc) error {
	for _, p := range procs {
		if p != nil && !p.Alive() {
			return fmt.Errorf("%s ended: %v; log %s", p.Spec.Name, DescribeExit(p.Err()), p.LogPath)
		}
	}
	return nil
}

// Err is how the process ended: nil for status 0 or while it runs.
func (p *Proc) Err() error {
	if p.Alive() {
		return nil
	}
	return p.err
}

// Signal sends sig to the process alone. Nothing happens if it has ended. If a kill test has it
// down, it gets sig when it is back; but of one that must end it is the end.
func (p *Proc) Signal(sig syscall.Signal) error {
	pid, err := p.claim(sig)
	if pid == 0 || err != nil {
		return err
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s (pid %d): send %v: %w", p.Spec.Name, pid, sig, err)
	}
	return nil
}

// Kill is kill -9 of the process alone, and waits until it has ended.
func (p *Proc) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s (pid %d): still exists 10 s after SIGKILL", p.Spec.Name, p.PID())
	}
}

// Stop sends the stop signal, waits StopTimeout, then kills; with the whole
// process group unless KeepGroup. A second Stop does nothing. An exit status
// other than 0 after a requested stop is not an error (the components differ);
// the need for SIGKILL is.
func (p *Proc) Stop() error {
	var late error
	p.mu.Lock()
	p.end() // whatever its stop signal is
	pid := p.pid
	p.mu.Unlock()
	if p.Alive() {
		if err := p.Signal(p.Spec.StopSignal); err != nil {
			return err
		}
		select {
		case <-p.done:
		case <-time.After(p.Spec.StopTimeout):
			late = fmt.Errorf("%s (pid %d): did not stop within %v of %v, killed; log: %s", p.Spec.Name, p.PID(), p.Spec.StopTimeout, p.Spec.StopSignal, p.LogPath)
			if err := p.Kill(); err != nil {
				return err
			}
		}
	}
	if !p.Spec.KeepGroup && pid != 0 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // ESRCH: the group is empty, as it should be
	}
	return late
}

// startLine begins the line that each start of a process writes into its log.
const startLine = "--- start "

// LastRunLog returns what the process has logged since its last start.
func (p *Proc) LastRunLog() (string, error) {
	b, err := os.ReadFile(p.LogPath)
	if err != nil {
		return "", err
	}
	i := strings.LastIndex(string(b), startLine)
	if i < 0 {
		return "", fmt.Errorf("%s: no line that begins with %q", p.LogPath, startLine)
	}
	_, last, _ := strings.Cut(string(b[i:]), "\n")
	return last, nil
}

// LogTail returns the last n lines of the log, for error messages.
func (p *Proc) LogTail(n int) string { return Tail(p.LogPath, n) }

// Tail returns the last n lines of a file, or why it cannot be read.
func Tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 64<<10 {
		_, _ = f.Seek(-64<<10, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i, l := range lines {
		if len(l) > 400 {
			lines[i] = l[:400] + "…"
		}
	}
	return strings.Join(lines, "\n")
}

// Indent indents every line of s by four spaces.
func Indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }

func (p *Proc) waitHealthy(ctx context.Context) error {
	check := p.Spec.Health
	if check == nil && p.Spec.HealthURL != "" {
		check = urlHealth(p.Spec.HealthURL, p.Spec.HealthTLS)
	}
	if check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.Spec.StartTimeout)
	defer cancel()
	last := errors.New("not asked yet")
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was healthy: %v", p.Spec.Name, DescribeExit(p.err))
		case <-ctx.Done():
			return fmt.Errorf("%s was not healthy within %v: %w", p.Spec.Name, p.Spec.StartTimeout, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// DescribeExit says how a process ended, from the error of its Wait.
func DescribeExit(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func urlHealth(url string, tc *tls.Config) func(context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: tc, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", url, resp.Status, bytes.TrimSpace(body))
		}
		return nil
	}
}
