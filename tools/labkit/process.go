// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	// Node runs the process inside that node's namespaces and cgroups.
	Node *Node
	// KeepGroup leaves other members of the process group alone at Stop.
	KeepGroup bool
}

// Proc is a started Process.
type Proc struct {
	Spec    Process
	Pid     int
	LogPath string
	Started time.Time

	done chan struct{}
	err  error // valid once done is closed
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Alive says whether the process still runs.
func (p *Proc) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err is how the process ended: nil for status 0 or while it runs.
func (p *Proc) Err() error {
	if p.Alive() {
		return nil
	}
	return p.err
}

// Signal sends sig to the process alone. Nothing happens if it has ended.
func (p *Proc) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(p.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s (pid %d): send %v: %w", p.Spec.Name, p.Pid, sig, err)
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
		return fmt.Errorf("%s (pid %d): still there 10 s after SIGKILL", p.Spec.Name, p.Pid)
	}
}

// Stop sends the stop signal, waits StopTimeout, then kills; with the whole
// process group unless KeepGroup. A second Stop does nothing. An exit status
// other than 0 after a requested stop is not an error (the components differ);
// the need for SIGKILL is.
func (p *Proc) Stop() error {
	var late error
	if p.Alive() {
		if err := p.Signal(p.Spec.StopSignal); err != nil {
			return err
		}
		select {
		case <-p.done:
		case <-time.After(p.Spec.StopTimeout):
			late = fmt.Errorf("%s (pid %d): did not stop within %v of %v, killed; log: %s", p.Spec.Name, p.Pid, p.Spec.StopTimeout, p.Spec.StopSignal, p.LogPath)
			if err := p.Kill(); err != nil {
				return err
			}
		}
	}
	if !p.Spec.KeepGroup {
		_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // ESRCH: the group is empty, as it should be
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
func (p *Proc) LogTail(n int) string { return tail(p.LogPath, n) }

func tail(path string, n int) string {
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

// Supervisor owns processes and other things to undo, of one directory.
// Its zero value is not usable; see NewSupervisor.
type Supervisor struct {
	Dir string // logs and data
	ID  string // in the environment of every process, as HOLDFAST_LAB_ID

	mu      sync.Mutex
	undo    []undo
	stopped bool
	counts  map[string]int
}

type undo struct {
	name string
	f    func(context.Context) error
}

// marker is the variable by which left-over processes are found.
const marker = "HOLDFAST_LAB_ID"

// NewSupervisor makes dir. id must not be used by anyone else on the machine.
func NewSupervisor(dir, id string) (*Supervisor, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &Supervisor{Dir: dir, ID: id, counts: map[string]int{}}, nil
}

// OnStop has f called by Stop, after everything that is registered later.
func (s *Supervisor) OnStop(name string, f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo = append(s.undo, undo{name, f})
}

// Stop undoes everything in reverse order and goes on after errors, which it
// returns together. Processes cannot be started afterwards.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.mu.Lock()
	us := s.undo
	s.undo = nil
	s.stopped = true
	s.mu.Unlock()
	var errs []error
	for i := len(us) - 1; i >= 0; i-- {
		if err := runUndo(ctx, us[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// runUndo turns a panic of one step into its error, so that the rest runs.
func runUndo(ctx context.Context, u undo) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("stop %s: panic: %v", u.name, r)
		}
	}()
	if err := u.f(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", u.name, err)
	}
	return nil
}

// spawner starts processes on one thread that never ends: the kernel sends
// Pdeathsig when the *thread* that forked ends, and Go ends idle threads.
var spawner = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
})

// startCmd starts cmd in the PID namespace of the file pidNS, or in this one if
// it is "". The PIDs of cmd are this namespace's in any case.
func startCmd(cmd *exec.Cmd, pidNS string) error {
	err := make(chan error)
	spawner() <- func() {
		if pidNS == "" {
			err <- cmd.Start()
		} else {
			err <- inPIDNS(pidNS, cmd.Start)
		}
	}
	return <-err
}

// inPIDNS has f's children start in that namespace. It must run on a locked thread.
func inPIDNS(file string, f func() error) error {
	enter := func(file string) error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWPID); err != nil {
			return fmt.Errorf("enter the PID namespace %s: %w", file, err)
		}
		return nil
	}
	if err := enter(file); err != nil {
		return err
	}
	return errors.Join(f(), enter("/proc/self/ns/pid"))
}

// Start starts p in a process group of its own, with a parent-death signal,
// and waits until it is healthy. If it is not, the process is stopped and the
// error has the end of its log. The process is stopped by Supervisor.Stop.
func (s *Supervisor) Start(ctx context.Context, p Process) (*Proc, error) {
	return s.start(ctx, p, 0)
}

// start is Start with new namespaces.
func (s *Supervisor) start(ctx context.Context, p Process, cloneflags uintptr) (*Proc, error) {
	if p.Name == "" || p.Path == "" {
		return nil, fmt.Errorf("process %q: Name and Path must be set", p.Name)
	}
	if p.StartTimeout == 0 {
		p.StartTimeout = 60 * time.Second
	}
	if p.StopTimeout == 0 {
		p.StopTimeout = 15 * time.Second
	}
	if p.StopSignal == 0 {
		p.StopSignal = syscall.SIGTERM
	}
	if p.Dir == "" {
		p.Dir = s.Dir
	}
	s.mu.Lock()
	stopped := s.stopped
	s.counts[p.Name]++
	n := s.counts[p.Name]
	s.mu.Unlock()
	if stopped {
		return nil, fmt.Errorf("start %s: the run is being stopped", p.Name)
	}

	proc := &Proc{Spec: p, LogPath: filepath.Join(s.Dir, p.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(proc.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	path, args := p.Path, p.Args
	if p.Node != nil {
		path, args = p.Node.join(path, args)
	}
	fmt.Fprintf(log, startLine+"%d of %s at %s: %s %s\n", n, p.Name, time.Now().UTC().Format(time.RFC3339Nano), p.Path, strings.Join(p.Args, " "))
	cmd := exec.Command(path, args...)
	cmd.Dir = p.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "LC_ALL=C", marker + "=" + s.ID}, p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: cloneflags}
	proc.Started = time.Now()
	pidNS := ""
	if p.Node != nil {
		if pidNS = p.Node.pidNS(); pidNS != "" {
			// From there Go takes the parent for dead already. The end of the
			// namespace's process 1, which has the signal, ends this one too.
			cmd.SysProcAttr.Pdeathsig = 0
		}
	}
	if err := startCmd(cmd, pidNS); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	proc.Pid = cmd.Process.Pid
	go func() {
		proc.err = cmd.Wait()
		if l, err := os.OpenFile(proc.LogPath, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			fmt.Fprintf(l, "--- end of %s (pid %d) at %s: %v\n", p.Name, proc.Pid, time.Now().UTC().Format(time.RFC3339Nano), cmd.ProcessState)
			l.Close()
		}
		close(proc.done)
	}()
	s.OnStop(p.Name, func(context.Context) error { return proc.Stop() })

	if err := proc.waitHealthy(ctx); err != nil {
		_ = proc.Stop()
		return nil, fmt.Errorf("%w\n  last lines of %s:\n%s", err, proc.LogPath, indent(proc.LogTail(15)))
	}
	return proc, nil
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }

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
			return fmt.Errorf("%s ended before it was healthy: %v", p.Spec.Name, describeExit(p.err))
		case <-ctx.Done():
			return fmt.Errorf("%s was not healthy within %v: %w", p.Spec.Name, p.Spec.StartTimeout, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func describeExit(err error) string {
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
