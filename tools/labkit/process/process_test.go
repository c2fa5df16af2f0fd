// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

func newSup(t *testing.T) *process.Supervisor {
	t.Helper()
	s, err := process.NewSupervisor(t.TempDir(), fmt.Sprintf("test-%d-%s", os.Getpid(), strings.ToLower(t.Name())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Stop(context.Background())
		if l := machine.Leaks(context.Background(), s.Dir, s.ID); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	})
	return s
}

func helperProc(name, what string, env ...string) process.Process {
	return process.Process{Name: name, Path: process.Self(), Env: append([]string{helperEnv + "=" + what}, env...)}
}

func exists(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// childPid waits for the helper's "child PID" line.
func childPid(t *testing.T, p *process.Proc) int {
	t.Helper()
	var pid int
	err := wait.Until(context.Background(), "the child's pid", 5*time.Second, func(context.Context) (bool, error) {
		_, after, ok := strings.Cut(p.LogTail(20), "child ")
		if !ok {
			return false, nil
		}
		n, _ := fmt.Sscan(after, &pid)
		return n == 1, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	if err := wait.Until(context.Background(), fmt.Sprintf("process %d gone", pid), 5*time.Second, func(context.Context) (bool, error) { return !exists(pid), nil }); err != nil {
		t.Error(err)
	}
}

func TestStartNoSuchProgram(t *testing.T) {
	_, err := newSup(t).Start(context.Background(), process.Process{Name: "x", Path: "/no/such/program"})
	if err == nil || !strings.Contains(err.Error(), "start x: ") || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("got %v", err)
	}
}

func TestStartWithoutName(t *testing.T) {
	if _, err := newSup(t).Start(context.Background(), process.Process{Path: "/bin/true"}); err == nil {
		t.Error("accepted")
	}
}

func TestStartEndsBeforeHealthy(t *testing.T) {
	p := helperProc("x", "fail")
	p.HealthURL = "http://127.0.0.1:1/healthz"
	_, err := newSup(t).Start(context.Background(), p)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"x ended before it was healthy", "exit status 3", "cannot open the frobnicator"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestStartHealthTimeout(t *testing.T) {
	s := newSup(t)
	p := helperProc("x", "sleep")
	p.Health = func(context.Context) error { return errors.New("still warming up") }
	p.StartTimeout = 300 * time.Millisecond
	_, err := s.Start(context.Background(), p)
	if err == nil || !strings.Contains(err.Error(), "x was not healthy within 300ms: still warming up") {
		t.Errorf("got %v", err)
	}
	if l := machine.Leaks(context.Background(), s.Dir, s.ID); len(l) > 0 {
		t.Errorf("the process was not stopped: %v", l)
	}
}

func TestStartCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := helperProc("x", "sleep")
	p.Health = func(context.Context) error { cancel(); return errors.New("no") }
	began := time.Now()
	if _, err := newSup(t).Start(ctx, p); err == nil {
		t.Error("no error")
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestStartHealthy(t *testing.T) {
	s := newSup(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p := helperProc("x", "serve", "LABKIT_TEST_ADDR="+addr)
	p.HealthURL = "http://" + addr + "/"
	began := time.Now()
	proc, err := s.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < 400*time.Millisecond {
		t.Errorf("healthy after %v, but it answered 500 for half a second", d)
	}
	if !proc.Alive() || proc.Err() != nil {
		t.Errorf("alive %v, err %v", proc.Alive(), proc.Err())
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if proc.Alive() {
		t.Error("alive after Stop")
	}
	if _, err := s.Start(context.Background(), p); err == nil {
		t.Error("started after Stop")
	}
}

func TestStopOrder(t *testing.T) {
	s := newSup(t)
	var order []string
	note := func(n string, f func() error) {
		s.OnStop(n, func(context.Context) error { order = append(order, n); return f() })
	}
	note("first", func() error { return nil })
	note("fails", func() error { return errors.New("stuck") })
	note("panics", func() error { panic("oops") })
	note("last", func() error { return nil })
	err := s.Stop(context.Background())
	if got := strings.Join(order, " "); got != "last panics fails first" {
		t.Errorf("order: %s", got)
	}
	if err == nil || !strings.Contains(err.Error(), "stop fails: stuck") || !strings.Contains(err.Error(), "stop panics: panic: oops") {
		t.Errorf("got %v", err)
	}
	if err := s.Stop(context.Background()); err != nil || len(order) != 4 {
		t.Errorf("a second Stop did something: %v %v", err, order)
	}
}

func TestStopStubborn(t *testing.T) {
	s := newSup(t)
	p := helperProc("x", "stubborn")
	p.StopTimeout = 300 * time.Millisecond
	proc, err := s.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	ignores := regexp.MustCompile(`(?m)^SigIgn:\s*[0-9a-f]*[4-7c-f][0-9a-f]{3}$`) // SIGTERM is bit 14
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", proc.Pid))
		if err == nil && ignores.Match(status) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not ignore SIGTERM: %v\n%s", err, status)
		}
	}
	if err := proc.Stop(); err == nil || !strings.Contains(err.Error(), "did not stop within 300ms") {
		t.Errorf("got %v", err)
	}
	if exists(proc.Pid) {
		t.Error("still there")
	}
	if err := proc.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestKill(t *testing.T) {
	s := newSup(t)
	proc, err := s.Start(context.Background(), helperProc("x", "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	if err := proc.Kill(); err != nil {
		t.Fatal(err)
	}
	if proc.Alive() || proc.Err() == nil {
		t.Errorf("alive %v, err %v", proc.Alive(), proc.Err())
	}
	if err := process.AllAlive(nil, proc); err == nil || !strings.Contains(err.Error(), "x ended: signal: killed") {
		t.Error(err)
	}
	if !strings.Contains(proc.LogTail(3), "signal: killed") {
		t.Errorf("log: %s", proc.LogTail(3))
	}
	if _, err := s.Start(context.Background(), helperProc("x", "sleep")); err != nil {
		t.Errorf("start again: %v", err)
	}
	if !strings.Contains(proc.LogTail(9), "--- start 2 of x") {
		t.Errorf("log: %s", proc.LogTail(9))
	}
	if last, err := proc.LastRunLog(); err != nil || strings.Contains(last, "--- start") || strings.Contains(last, "signal: killed") {
		t.Errorf("log of the last run: %q, %v", last, err)
	}
}

func TestStopTakesTheGroup(t *testing.T) {
	s := newSup(t)
	proc, err := s.Start(context.Background(), helperProc("x", "groupchild"))
	if err != nil {
		t.Fatal(err)
	}
	pid := childPid(t, proc)
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	waitGone(t, pid)
}

func TestLeaksFindsARunaway(t *testing.T) {
	s := newSup(t)
	proc, err := s.Start(context.Background(), helperProc("x", "child"))
	if err != nil {
		t.Fatal(err)
	}
	pid := childPid(t, proc)
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	leaks := machine.Leaks(context.Background(), s.Dir, s.ID)
	if len(leaks) != 1 || !strings.HasPrefix(leaks[0], fmt.Sprintf("process %d: ", pid)) {
		t.Errorf("leaks %v, want process %d", leaks, pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestParentDeath(t *testing.T) {
	s := newSup(t)
	proc, err := s.Start(context.Background(), helperProc("x", "supervisor", "LABKIT_TEST_DIR="+t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	pid := childPid(t, proc)
	if !exists(pid) {
		t.Fatal("the child is not there")
	}
	if err := proc.Kill(); err != nil { // no chance to clean up
		t.Fatal(err)
	}
	waitGone(t, pid)
}
