// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"holdfast/cmd/internal/atomicfile"
)

// TestDiskFull: from each step on nothing can be written. Before the stop nothing is touched;
// after it the old kubelet is put back, for which no room is needed.
func TestDiskFull(t *testing.T) {
	defer func(f func(*os.File) error) { atomicfile.Sync = f }(atomicfile.Sync)
	sync := atomicfile.Sync
	for _, at := range []string{"keep", "kept", "stage", prepared, stopping, "stopped", renaming, "renamed", starting, "started", healthy, done} {
		f := newFake(t)
		full, reached := false, false
		atomicfile.Sync = func(file *os.File) error {
			if full {
				return syscall.ENOSPC
			}
			return sync(file)
		}
		f.Step = func(s string) {
			if s == at {
				full, reached = true, true
			}
		}
		pid := f.pid()
		status, out := f.do(false)
		switch {
		case !reached:
			t.Errorf("%s: no such step", at)
		case at == done: // nothing is written after it
			f.is(t, holdfast)
		case at == healthy: // it runs, and the last state cannot be written
			if status != 1 || !strings.Contains(out, "no space left") {
				t.Errorf("%s: %d %s", at, status, out)
			}
			f.is(t, holdfast)
		default:
			if status != 3 || !strings.Contains(out, "no space left") && at != "started" && at != starting {
				t.Errorf("%s: %d %s", at, status, out)
			}
			f.is(t, v170)
			if early := at == "keep" || at == "kept" || at == "stage"; early != (f.pid() == pid) && at != prepared && at != stopping {
				t.Errorf("%s: process %d, then %d\n%s", at, pid, f.pid(), out)
			}
		}
		full = false
		f.Step = func(string) {}
		if status, out := f.do(false); status != 0 {
			t.Errorf("%s, then with room: %d %s", at, status, out)
		}
		f.is(t, holdfast)
	}
}

// TestKilled kills the program at each step, there and back, also with a kubelet that does not
// run, and runs it again. In between the node may be without a kubelet; after it one runs.
func TestKilled(t *testing.T) {
	type run struct {
		name       string
		make       func(f *fake)
		back       bool
		want       []string // what may run after the second run
		status     int
		unmountsAt bool
	}
	for _, c := range []run{
		{name: "there", make: func(*fake) {}, want: []string{holdfast}},
		{name: "there, it exits", make: func(f *fake) { f.write("new", holdfast+"exits") }, want: []string{v170}, status: 3},
		{name: "back", back: true, make: func(f *fake) { f.do(false); f.subpath() }, want: []string{v170}},
		{name: "back, busy", back: true, make: func(f *fake) { f.do(false); f.subpath(); f.write("busy", "") }, want: []string{holdfast}, status: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := 0
			for at := 1; ; at++ {
				f := newFake(t)
				c.make(f)
				status, out := f.child(t, c.back, at)
				if status >= 0 {
					if steps = at - 1; status != c.status {
						t.Errorf("without a kill: status %d\n%s", status, out)
					}
					break
				}
				at := f.read("killed-at")
				status, out = f.child(t, c.back, 0)
				if status != c.status {
					t.Errorf("killed at %s, then status %d\n%s", at, status, out)
				}
				got := f.kubelet()
				for _, w := range c.want {
					if got == w {
						got = ""
					}
				}
				if got != "" || f.pid() == 0 {
					t.Errorf("killed at %s: then %q runs\n%s", at, f.kubelet(), out)
				}
			}
			if steps < 8 {
				t.Errorf("only %d steps", steps)
			}
		})
	}
}
