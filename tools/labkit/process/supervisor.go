// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
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

// Supervisor owns processes and other things to undo, of one directory.
// Its zero value is not usable; see NewSupervisor.
type Supervisor struct {
	Dir string // logs and data
	ID  string // in the environment of every process, as HOLDFAST_LAB_ID

	mu      sync.Mutex
	undo    []undo
	stopped bool
	counts  map[string]int
	// See life.go.
	components []*Proc
	down       int
	calm       time.Time
}

type undo struct {
	name string
	f    func(context.Context) error
}

// Marker is the variable by which left-over processes are found.
const Marker = "HOLDFAST_LAB_ID"

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

// StartCmd starts cmd in the PID namespace of the file pidNS, or in this one if
// it is "". The PIDs of cmd are this namespace's in any case.
func StartCmd(cmd *exec.Cmd, pidNS string) error {
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
	s.mu.Unlock()
	if stopped {
		return nil, fmt.Errorf("start %s: the run is being stopped", p.Name)
	}
	proc := &Proc{Spec: p, LogPath: filepath.Join(s.Dir, p.Name+".log"), Started: time.Now(), in: s, done: make(chan struct{}), life: life{halt: make(chan struct{})}}
	cmd, err := s.spawn(proc)
	if err != nil {
		return nil, err
	}
	proc.Pid = cmd.Process.Pid
	proc.pid = proc.Pid
	go proc.reap(cmd)
	if p.Component != "" {
		s.mu.Lock()
		s.components = append(s.components, proc)
		s.mu.Unlock()
	}
	s.OnStop(p.Name, func(context.Context) error { return proc.Stop() })

	if err := proc.waitHealthy(ctx); err != nil {
		_ = proc.Stop()
		return nil, fmt.Errorf("%w\n  last lines of %s:\n%s", err, proc.LogPath, Indent(proc.LogTail(15)))
	}
	return proc, nil
}

// spawn starts the program of proc.
func (s *Supervisor) spawn(proc *Proc) (*exec.Cmd, error) {
	p := proc.Spec
	s.mu.Lock()
	s.counts[p.Name]++
	n := s.counts[p.Name]
	s.mu.Unlock()
	if p.Before != nil {
		if err := p.Before(); err != nil {
			return nil, fmt.Errorf("start %s: %w", p.Name, err)
		}
	}
	log, err := os.OpenFile(proc.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	path, args, pidNS := p.Path, p.Args, ""
	if p.In != nil {
		path, args = p.In.Join(path, args)
		pidNS = p.In.PIDNamespace()
	}
	fmt.Fprintf(log, startLine+"%d of %s at %s: %s %s\n", n, p.Name, time.Now().UTC().Format(time.RFC3339Nano), p.Path, strings.Join(p.Args, " "))
	cmd := exec.Command(path, args...)
	cmd.Dir = p.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "LC_ALL=C", Marker + "=" + s.ID}, p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: p.Cloneflags}
	if pidNS != "" {
		// From there Go takes the parent for dead already. The end of the
		// namespace's process 1, which has the signal, ends this one too.
		cmd.SysProcAttr.Pdeathsig = 0
	}
	if err := StartCmd(cmd, pidNS); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return cmd, nil
}

// Self is this program; os.Executable is a constant path after start.
func Self() string {
	p, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return p
}
