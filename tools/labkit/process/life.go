// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// backTries is how often a process that a kill test killed is started until it is healthy.
	backTries = 5
	// backPause is the pause before another try.
	backPause = time.Second
	// downBound bounds the wait of a signal for a process that a kill test has down.
	downBound = 30 * time.Second
	// settle is how long after its health others may still feel that a process was away.
	settle = 3 * time.Second
)

// life is what changes while a process runs.
type life struct {
	mu      sync.Mutex
	pid     int           // 0 while it is down; of an ended process its last
	stopped bool          // the lab has it end: it stays away
	frozen  bool          // by SIGSTOP
	tries   int           // starts that it has left after a kill test's kill; 0: it does not come back
	pause   time.Duration // before the next of these
	down    chan struct{} // closed when it has started again; nil while it runs
	halt    chan struct{} // closed when stopped is set
}

// ends are the signals by which a lab has a process end.
func ends(sig syscall.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGKILL || sig == syscall.SIGINT || sig == syscall.SIGQUIT
}

// claim is the PID that gets sig, 0 if none does. From then on a kill test leaves alone what
// ends or is frozen.
func (p *Proc) claim(sig syscall.Signal) (int, error) {
	bound := time.After(downBound)
	for p.Alive() {
		p.mu.Lock()
		if ends(sig) {
			p.end()
		}
		pid, down := p.pid, p.down
		if down == nil && (sig == syscall.SIGSTOP || sig == syscall.SIGCONT) {
			p.frozen = sig == syscall.SIGSTOP
		}
		p.mu.Unlock()
		if down == nil || ends(sig) {
			return pid, nil
		}
		select {
		case <-down:
		case <-p.done:
		case <-bound:
			return 0, fmt.Errorf("%s: not back within %v, so %v was not sent", p.Spec.Name, downBound, sig)
		}
	}
	return 0, nil
}

// end has the process stay away. The caller has p.mu.
func (p *Proc) end() {
	if !p.stopped {
		p.stopped = true
		close(p.halt)
	}
}

// Interrupt is kill -9 by a kill test: after pause the process starts again by itself, as
// under a supervisor like systemd. It is left alone, and the answer is false, if it does not
// run, or if the lab stops it or has it frozen. Back must be called after true.
func (p *Proc) Interrupt(pause time.Duration) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Alive() || p.stopped || p.frozen || p.tries > 0 || p.down != nil {
		return false, nil
	}
	p.in.disturb(1)
	p.tries, p.pause, p.down = backTries, pause, make(chan struct{})
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		p.tries, p.down = 0, nil
		p.in.disturb(-1)
		return false, fmt.Errorf("%s (pid %d): %w", p.Spec.Name, p.pid, err)
	}
	return true, nil
}

// Back waits until a process that was interrupted is healthy. nil also if the lab has
// ended it meanwhile.
func (p *Proc) Back(ctx context.Context) error {
	defer p.in.disturb(-1)
	p.mu.Lock()
	down := p.down
	p.mu.Unlock()
	if down != nil {
		select {
		case <-down:
		case <-p.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := p.waitHealthy(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries = 0
	if p.stopped {
		return nil
	}
	if err == nil && !p.Alive() {
		return fmt.Errorf("%s is not back: %v", p.Spec.Name, DescribeExit(p.err))
	}
	return err
}

// reap waits for cmd, and for what starts in its place, until the process stays away.
func (p *Proc) reap(cmd *exec.Cmd) {
	for cmd != nil {
		err := cmd.Wait()
		if l, e := os.OpenFile(p.LogPath, os.O_WRONLY|os.O_APPEND, 0); e == nil {
			fmt.Fprintf(l, "--- end of %s (pid %d) at %s: %v\n", p.Spec.Name, cmd.Process.Pid, time.Now().UTC().Format(time.RFC3339Nano), cmd.ProcessState)
			l.Close()
		}
		cmd, p.err = p.again(cmd.Process.Pid, err)
	}
	close(p.done)
}

// again starts a process that a kill test killed; nil if it stays away, with how it ended.
func (p *Proc) again(pid int, ended error) (*exec.Cmd, error) {
	for {
		p.mu.Lock()
		if p.tries == 0 || p.stopped {
			p.mu.Unlock()
			return nil, ended
		}
		if p.down == nil { // it ended again before it was healthy
			p.down = make(chan struct{})
		}
		p.tries--
		p.pid = 0
		pause := p.pause
		p.pause = backPause
		p.mu.Unlock()
		if !p.Spec.KeepGroup {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // as systemd does with a unit's other processes
		}
		select {
		case <-time.After(pause):
		case <-p.halt:
			return nil, ended
		}
		p.mu.Lock()
		if p.stopped {
			p.mu.Unlock()
			return nil, ended
		}
		cmd, err := p.in.spawn(p)
		if err == nil {
			p.pid = cmd.Process.Pid
			close(p.down)
			p.down = nil
			p.mu.Unlock()
			return cmd, nil
		}
		p.mu.Unlock()
		ended = err
	}
}

// disturb counts the processes that a kill test has down.
func (s *Supervisor) disturb(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down += n
	s.calm = time.Now().Add(settle)
}

// Disturbed says whether a kill test has a process down, or had until a moment ago. Without a
// kill test it is never so.
func (s *Supervisor) Disturbed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down > 0 || time.Now().Before(s.calm)
}

// Components are the processes with a Component that were started, in their order.
func (s *Supervisor) Components() []*Proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Proc(nil), s.components...)
}

// Supervisor is who started the process.
func (p *Proc) Supervisor() *Supervisor { return p.in }
