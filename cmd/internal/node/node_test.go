// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"testing"
	"time"
)

func (f *fake) is(t *testing.T, want string) {
	t.Helper()
	if got := f.kubelet(); got != want {
		t.Errorf("this kubelet runs: %q, want %q\n%s", got, want, f.read("calls"))
	}
	if _, err := os.Stat(beside(f.p("usr/bin/kubelet"), "new")); err == nil {
		t.Error("the staged kubelet was left")
	}
}

func TestThereAndBack(t *testing.T) {
	f := newFake(t)
	before := f.snapshot()
	if status, out := f.do(false, func(o *Options) { o.DryRun = true }); status != 0 || !strings.Contains(out, untouched) {
		t.Errorf("dry run: %d %s", status, out)
	}
	if _, err := os.Stat(f.Lib); err == nil || f.snapshot() != before {
		t.Error("a dry run wrote something")
	}
	status, out := f.do(false)
	if status != 0 || !strings.Contains(out, "kept 3, recreated 0, new 0, gone 0: nothing found") {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, holdfast)
	if got := f.read("usr/lib/holdfast/kept/v1.7.0/kubelet"); got != v170 {
		t.Errorf("kept: %q", got)
	}
	for _, file := range []string{"unit", "unit", "environment"} {
		if _, err := os.Stat(f.p("usr/lib/holdfast/kept/v1.7.0/" + file)); err != nil {
			t.Error(err)
		}
	}
	// Again, then a later Holdfast: the kept one stays.
	pid := f.pid()
	if status, out = f.do(false); status != 0 || !strings.Contains(out, "already") || f.pid() != pid {
		t.Errorf("again: %d %s", status, out)
	}
	f.write("new", later)
	f.containers("1 app a", "2 app other", "3 app d")
	f.Step = func(s string) {
		if s == healthy {
			f.containers("1 app a2", "2 app other", "4 app e")
		}
	}
	if status, out = f.do(false); status != 0 || !strings.Contains(out, "kept 1, recreated 1 (default/pod-1 app), new 1, gone 1: 1 new, 1 warn") || !strings.Contains(out, "HF514") || !strings.Contains(out, "HF527 default/pod-3 app") {
		t.Errorf("later: %d %s", status, out)
	}
	f.is(t, later)
	f.Step = func(string) {}
	for range 2 {
		if status, out = f.do(true); status != 0 {
			t.Errorf("back: %d %s", status, out)
		}
		f.is(t, v170)
	}
	if strings.Contains(f.read("usr/lib/holdfast/journal"), secret) || !strings.Contains(f.read("usr/lib/holdfast/journal"), "phase done") {
		t.Error(f.read("usr/lib/holdfast/journal"))
	}
}

// TestStops: each finding leaves the node as it was.
func TestStops(t *testing.T) {
	for name, c := range map[string]struct {
		make func(f *fake)
		want string
	}{
		"edited environment file": {func(f *fake) { f.write("etc/default", "EXTRA=--api-servers=x\n") }, "HF101"},
		"standalone": {func(f *fake) {
			f.write("etc/10-kubeadm.conf", "[Service]\nExecStart=\nExecStart="+f.p("usr/bin/kubelet")+" $CONFIG --root-dir=/x\n")
		}, "HF102"},
		"api-servers only": {func(f *fake) {
			f.write("etc/10-kubeadm.conf", "[Service]\nExecStart=\nExecStart="+f.p("usr/bin/kubelet")+" --api-servers=http://x\n")
		}, "HF102"},
		"1.7 with --kubeconfig alone": {func(f *fake) {
			f.write("etc/10-kubeadm.conf", strings.Replace(f.read("etc/10-kubeadm.conf"), " --require-kubeconfig=true", "", 1))
		}, "v1.7.0 would run standalone"},
		"gate of ours": {func(f *fake) { f.write("etc/default", "EXTRA=--feature-gates=LegacyContainerHashWrite=true\n") }, "v1.7.0 does not accept LegacyContainerHashWrite"},
		"not loaded":   {func(f *fake) { f.write("changed", "") }, "HF502"},
		"hyperkube":    {func(f *fake) { f.write("usr/bin/kubelet", "#!/bin/sh\n") }, "HF503"},
		"link": {func(f *fake) {
			_ = os.Rename(f.p("usr/bin/kubelet"), f.p("usr/bin/kubelet-1.7.0"))
			_ = os.Symlink("kubelet-1.7.0", f.p("usr/bin/kubelet"))
		}, "HF503"},
		"read-only": {func(f *fake) { f.Space = func(string) (Space, error) { return Space{1, 1, 1, 1, true}, nil } }, "HF504"},
		"full": {func(f *fake) {
			f.Space = func(d string) (Space, error) { return Space{1000, 2000, 1, 1, false}, nil }
		}, "HF504"},
		"no Holdfast": {func(f *fake) { f.write("new", "kubelet v1.9.11\n"+newGates) }, "HF505"},
		"no kubelet":  {func(f *fake) { f.write("new", "garbage") }, "HF505"},
		"none":        {func(f *fake) { os.Remove(f.p("new")) }, "HF505"},
		"swap space":  {func(f *fake) { f.write("proc/swaps", "Filename\n/dev/sda2\n") }, "HF506"},
		"fuse": {func(f *fake) {
			f.write("sys/fs/cgroup/kubelet/cgroup.procs", "7\n")
			f.write("proc/7/comm", "glusterfs\n")
		}, "STOP HF507"},
		"no kubeconfig": {func(f *fake) { os.Remove(f.p("etc/kubeconfig")) }, "HF508"},
		"images": {func(f *fake) {
			f.Space = func(d string) (Space, error) {
				if d == "/var/lib/docker" {
					return Space{14 << 30, 100 << 30, 50, 100, false}, nil
				}
				return Space{50 << 30, 100 << 30, 50, 100, false}, nil
			}
		}, "STOP HF105"},
		"memory":  {func(f *fake) { f.write("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 90000 kB\n") }, "STOP HF105"},
		"private": {func(f *fake) { f.write("proc/self/mountinfo", "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n") }, "HF516"},
		"docker":  {func(f *fake) { f.write("containers.json", "<html>") }, "STOP HF509"},
		"lost file": {func(f *fake) {
			f.write("etc/10-kubeadm.conf", strings.Replace(f.read("etc/10-kubeadm.conf"), "EnvironmentFile=-", "EnvironmentFile=/gone", 1))
		}, "HF503"},
	} {
		f := newFake(t)
		c.make(f)
		before, pid := f.snapshot(), f.pid()
		status, out := f.do(false)
		if status != 3 || !strings.Contains(out, c.want) || !strings.Contains(out, untouched) {
			t.Errorf("%s: status %d, want %s in\n%s", name, status, c.want, out)
		}
		if f.snapshot() != before || f.pid() != pid {
			t.Errorf("%s: something was touched", name)
		}
		if m, out := f.check(t); !m.stops() || strings.Contains(out, secret) {
			t.Errorf("%s: the check says\n%s", name, out)
		}
	}
}

// TestCheck: what is well is a row without a code, and nothing is written.
func TestCheck(t *testing.T) {
	f := newFake(t)
	before := f.snapshot()
	m, out := f.check(t)
	if len(m.findings()) != 0 || f.snapshot() != before || !strings.Contains(out, "nothing found") {
		t.Errorf("%v\n%s", m.findings(), out)
	}
	if _, err := os.Stat(f.Lib); err == nil {
		t.Error("the check made a folder")
	}
	for l := range strings.SplitSeq(out, "\n") {
		if len(l) > 80 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	// A warning: the swap starts what the files say now.
	f.write("etc/default", "EXTRA=--eviction-hard=imagefs.available<1%\n")
	future := time.Now().Add(time.Hour)
	_ = os.Chtimes(f.p("etc/default"), future, future)
	m, out = f.check(t)
	if m.stops() || !strings.Contains(out, "HF501") || !strings.Contains(out, "--eviction-hard") || !strings.Contains(strings.Join(strings.Fields(out), " "), "newer than the process") {
		t.Errorf("%s", out)
	}
	if status, out := f.do(false); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	if b := f.read("proc/101/cmdline"); !strings.Contains(b, "--eviction-hard=imagefs.available<1%") {
		t.Errorf("%q", b)
	}
}

// TestNewDoesNotRun: the kubelet from before is put back.
func TestNewDoesNotRun(t *testing.T) {
	for how, want := range map[string]string{"exits": "exited at startup", "other flags": "standalone", "is ill": "not healthy", "ends later": "ended"} {
		f := newFake(t)
		f.write("new", holdfast+how)
		status, out := f.do(false, func(o *Options) { o.Settle = 20 * time.Millisecond })
		if status != 3 || !strings.Contains(out, "HF511") || !strings.Contains(out, want) || !strings.Contains(out, "v1.7.0 runs again") {
			t.Errorf("%s: %d %s", how, status, out)
		}
		f.is(t, v170)
		// And then one that runs.
		f.write("new", holdfast)
		if status, out = f.do(false); status != 0 {
			t.Errorf("%s, then: %d %s", how, status, out)
		}
		f.is(t, holdfast)
	}
}

func TestOldDoesNotStop(t *testing.T) {
	defer func(d time.Duration) { stopTimeout = d }(stopTimeout)
	stopTimeout = 50 * time.Millisecond
	f := newFake(t)
	f.write("usr/bin/kubelet", v170+"hangs")
	f.stop()
	f.start()
	if status, out := f.do(false); status != 3 || !strings.Contains(out, "runs again") {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v170+"hangs")
}

func (f *fake) subpath() string {
	m := f.p("var/lib/kubelet") + "/pods/u/volume-subpaths/v/c/0"
	f.write("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sda1 "+m+" ext4 rw 0 0\n/dev/sda1 "+m+" ext4 rw 0 0\n/dev/sdb "+f.p("other")+"/pods/u/volume-subpaths/v/c/0 ext4 rw 0 0\n")
	return m
}

// TestBackUnmounts: all mounts below the real root directory, no others, and only for a kubelet
// that would delete files.
func TestBackUnmounts(t *testing.T) {
	f := newFake(t)
	f.do(false)
	m := f.subpath()
	if status, out := f.do(true); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v170)
	if left := f.read("proc/self/mounts"); strings.Contains(left, m) || !strings.Contains(left, "/other/") {
		t.Error(left)
	}
	f = newFake(t)
	f.write("usr/bin/kubelet", v1716)
	f.stop()
	f.start()
	f.do(false)
	m = f.subpath()
	if status, out := f.do(true); status != 0 || !strings.Contains(f.read("proc/self/mounts"), m) {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v1716)
}

// TestBusy: who holds the mount is named, and Holdfast runs again.
func TestBusy(t *testing.T) {
	f := newFake(t)
	f.do(false)
	m := f.subpath()
	f.write("busy", "")
	f.write("proc/77/comm", "backup\n")
	_ = os.Symlink(m+"/data", f.p("proc/77/cwd"))
	status, out := f.do(true)
	if status != 3 || !strings.Contains(out, "HF512") || !strings.Contains(out, "77 backup") || !strings.Contains(out, "v1.9.11+holdfast.2 runs") {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, holdfast)
	os.Remove(f.p("busy"))
	if status, out := f.do(true); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v170)
}

// TestBackRefuses: a gate of ours in the unit, a kept kubelet that was changed, none that was kept.
func TestBackRefuses(t *testing.T) {
	f := newFake(t)
	if status, out := f.do(true); status != 3 || !strings.Contains(out, "HF505") {
		t.Errorf("nothing kept: %d %s", status, out)
	}
	f.do(false)
	f.write("etc/default", "EXTRA=--feature-gates=LegacyContainerHashWrite=true,AppArmor=true\n")
	status, out := f.do(true)
	if status != 3 || !strings.Contains(out, "HF101") || !strings.Contains(out, "--feature-gates=AppArmor=true") {
		t.Errorf("gate: %d %s", status, out)
	}
	f.is(t, holdfast)
	f.write("etc/default", "")
	f.write("usr/lib/holdfast/kept/v1.7.0/kubelet", "kubelet v1.7.0\nother\n")
	if status, out := f.do(true); status != 3 || !strings.Contains(out, "not the file that was saved") {
		t.Errorf("changed: %d %s", status, out)
	}
	f.is(t, holdfast)
}

// TestOtherFileSystem: where no link can be, a copy is kept. Where that fails too, nothing is
// touched and nothing is left.
func TestOtherFileSystem(t *testing.T) {
	f := newFake(t)
	f.Link = func(string, string) error { return os.ErrInvalid }
	if status, out := f.do(false); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, holdfast)
	if status, out := f.do(true); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v170)

	f = newFake(t)
	f.Link = func(string, string) error { return os.ErrInvalid }
	f.Step = func(s string) {
		if s == "kept" { // the folder goes away
			_ = os.RemoveAll(f.p("usr/lib/holdfast/kept"))
		}
	}
	pid := f.pid()
	status, out := f.do(false)
	if status != 3 || !strings.Contains(out, "HF504") || f.pid() != pid {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v170)
	if status, out := f.do(true); status != 3 || !strings.Contains(out, "no kubelet is saved") {
		t.Errorf("%d %s", status, out)
	}
}

func TestWithoutSystemd(t *testing.T) {
	f := newFake(t)
	// Without systemd the program is found by this link.
	os.Remove(f.p("proc/100/exe"))
	if err := os.Symlink(f.p("usr/bin/kubelet"), f.p("proc/100/exe")); err != nil {
		t.Fatal(err)
	}
	m, err := look(t.Context(), f.Host, Options{StartCommand: "start", StopCommand: "stop", Program: f.p("usr/bin/kubelet")}, os.Stderr)
	if err != nil || m.pid != 100 {
		t.Fatalf("%v %d", err, m.pid)
	}
	m.judge(t.Context(), f.p("new"), false)
	if m.stops() || len(m.findings()) != 1 || m.findings()[0].Code != "HF509" {
		t.Errorf("%v", m.findings())
	}
}

// TestLock: two at a time are not.
func TestLock(t *testing.T) {
	f := newFake(t)
	l, err := lock(f.Host)
	if err != nil {
		t.Fatal(err)
	}
	if status, out := f.do(false); status != 1 || !strings.Contains(out, "another") {
		t.Errorf("%d %s", status, out)
	}
	l.Close()
	if status, out := f.do(false); status != 0 {
		t.Errorf("%d %s", status, out)
	}
}

// TestAdopt: what the runbook kept before is taken over.
func TestAdopt(t *testing.T) {
	f := newFake(t)
	f.write("usr/bin/kubelet", holdfast)
	f.write("usr/bin/kubelet.before-holdfast", v170)
	f.write("new", later)
	f.stop()
	f.start()
	if status, out := f.do(false); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, later)
	if status, out := f.do(true); status != 0 {
		t.Errorf("%d %s", status, out)
	}
	f.is(t, v170)
}
