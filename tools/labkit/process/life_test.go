// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

const pause = 200 * time.Millisecond

func component(t *testing.T, s *process.Supervisor, what string) *process.Proc {
	t.Helper()
	spec := helperProc("x", what)
	spec.Component = "thing"
	p, err := s.Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func interrupt(t *testing.T, p *process.Proc, pause time.Duration) {
	t.Helper()
	if hit, err := p.Interrupt(pause); !hit || err != nil {
		t.Fatal(hit, err)
	}
}

// TestInterrupt: what a kill test kills is back as the same Proc, with another PID and the same log.
func TestInterrupt(t *testing.T) {
	s := newSup(t)
	p := component(t, s, "sleep")
	if got := s.Components(); len(got) != 1 || got[0] != p {
		t.Errorf("components %v", got)
	}
	if s.Disturbed() {
		t.Error("disturbed before any kill")
	}
	was, began := p.PID(), time.Now()
	interrupt(t, p, pause)
	if hit, err := p.Interrupt(pause); hit || err != nil {
		t.Errorf("interrupted while it is down: %v", err)
	}
	if !s.Disturbed() || !p.Alive() || process.AllAlive(p) != nil {
		t.Errorf("disturbed %v, alive %v", s.Disturbed(), p.Alive())
	}
	if err := p.Back(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < pause || d > 5*time.Second {
		t.Errorf("back after %v", d)
	}
	if now := p.PID(); now == was || now == 0 || exists(was) || !exists(now) {
		t.Errorf("pid %d, then %d", was, now)
	}
	if log := p.LogTail(9); !strings.Contains(log, "--- start 2 of x") || !strings.Contains(log, "signal: killed") {
		t.Errorf("log: %s", log)
	}
	if !s.Disturbed() {
		t.Error("what others feel is over at once")
	}
	// A kill of the lab's is the end, a further one of a kill test's is not.
	interrupt(t, p, pause)
	if err := p.Back(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil || p.Alive() {
		t.Error(err)
	}
	if hit, err := p.Interrupt(pause); hit || err != nil {
		t.Errorf("interrupted after its end: %v", err)
	}
}

// TestInterruptLeavesAlone what the lab has stopped.
func TestInterruptLeavesAlone(t *testing.T) {
	p := component(t, newSup(t), "sleep")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if hit, err := p.Interrupt(0); hit || err != nil {
		t.Errorf("interrupted what is frozen: %v", err)
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	interrupt(t, p, 0)
	if err := p.Back(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if hit, err := p.Interrupt(0); hit || err != nil {
		t.Errorf("interrupted what must end: %v", err)
	}
	<-p.Done()
}

// TestEndedWhileDown: each way in which a lab ends a process also ends one that is down.
func TestEndedWhileDown(t *testing.T) {
	for name, end := range map[string]func(*process.Proc) error{
		"Kill": (*process.Proc).Kill,
		"Stop": (*process.Proc).Stop,
		"SIGTERM": func(p *process.Proc) error {
			err := p.Signal(syscall.SIGTERM)
			<-p.Done()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := component(t, newSup(t), "sleep")
			interrupt(t, p, time.Minute)
			if err := wait.Until(context.Background(), "down", 5*time.Second, func(context.Context) (bool, error) { return p.PID() == 0, nil }); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := end(p); err != nil {
				t.Error(err)
			}
			if p.Alive() || p.Err() == nil || time.Since(began) > 5*time.Second {
				t.Errorf("alive %v, err %v, after %v", p.Alive(), p.Err(), time.Since(began))
			}
			if err := p.Back(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSignalWhileDown: another signal waits until the process is there.
func TestSignalWhileDown(t *testing.T) {
	p := component(t, newSup(t), "sleep")
	interrupt(t, p, pause)
	began := time.Now()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < pause/2 {
		t.Errorf("sent after %v", d)
	}
	if err := wait.Until(context.Background(), "frozen", 5*time.Second, func(context.Context) (bool, error) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID()), "stat"))
		return strings.Contains(string(b), ") T "), err
	}); err != nil {
		t.Error(err)
	}
	if err := p.Back(context.Background()); err != nil {
		t.Error(err)
	}
	_ = p.Signal(syscall.SIGCONT)
}

// TestBackTries: a start that fails is repeated, not for ever.
func TestBackTries(t *testing.T) {
	s := newSup(t)
	var mu sync.Mutex
	starts, fail := 0, 1
	spec := helperProc("x", "sleep")
	spec.Component = "thing"
	spec.Before = func() error {
		mu.Lock()
		defer mu.Unlock()
		if starts++; starts > 1 && fail > 0 {
			fail--
			return errors.New("not yet")
		}
		return nil
	}
	p, err := s.Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	interrupt(t, p, 0)
	if err := p.Back(context.Background()); err != nil || starts != 3 {
		t.Errorf("%d starts, %v", starts, err)
	}
	mu.Lock()
	fail = 99
	mu.Unlock()
	interrupt(t, p, 0)
	err = p.Back(context.Background())
	if p.Alive() || err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("alive %v, %v", p.Alive(), err)
	}
}

// TestInterruptRaces: whatever a lab does meanwhile, nothing is left, and Done is closed once
// the lab has ended the process.
func TestInterruptRaces(t *testing.T) {
	s := newSup(t)
	for i := range 30 {
		p := component(t, s, "sleep")
		var g sync.WaitGroup
		g.Go(func() {
			if hit, _ := p.Interrupt(time.Duration(i%3) * time.Millisecond); hit {
				_ = p.Back(context.Background())
			}
		})
		g.Go(func() {
			for range 20 {
				_, _ = p.PID(), p.Alive()
				_ = p.Signal(syscall.SIGCONT)
			}
		})
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		g.Wait()
		if p.Alive() {
			t.Fatal("alive after Stop")
		}
		if pid := p.PID(); pid != 0 && exists(pid) {
			t.Fatalf("process %d is left", pid)
		}
	}
}
