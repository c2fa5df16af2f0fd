// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/util/mount"
)

// busyImage is a rig whose attach runs every command that one can: an old lock to clear, and
// for a read-only mount others that have the image open.
func busyImage(t *testing.T, readOnly bool) *attachRig {
	r := newAttachRig(t, true)
	if readOnly {
		r.watchers = []rbdWatcher{foreignWatcher}
	} else {
		r.locks = []rbdLock{{kubeLockMagic + "x", "client.4", "10.0.0.13:0/1"}}
	}
	return r
}

// ends runs attach and fails where it takes longer than a test may.
func (r *attachRig) ends(what string, readOnly bool) (string, error) {
	r.t.Helper()
	type answer struct {
		device string
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		d, err := r.attach(readOnly)
		done <- answer{d, err}
	}()
	select {
	case a := <-done:
		return a.device, a.err
	case <-time.After(30 * time.Second):
		r.t.Fatalf("%s: the attach does not end", what)
		return "", nil
	}
}

// Each command of an attach fails once, is killed once, and hangs once until its time-out or
// for a while. An attach that fails hands out no device, and leaves none that a read-only
// mount could not have; the next one has it, protected where it must be.
func TestAttachEachCall(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		r := busyImage(t, readOnly)
		if _, err := r.attach(readOnly); err != nil {
			t.Fatal(err)
		}
		lines := r.calls()
		r.end()
		if len(lines) < 6 {
			t.Fatalf("an attach runs %q only", lines)
		}
		for n, line := range lines {
			for how, answer := range map[string]struct {
				output string
				err    error
				wait   time.Duration
			}{
				"fails":                {"rbd: couldn't connect\n", exit(1), 0},
				"is killed":            {"", exit(137), 0},
				"hangs to its timeout": {"(110) Connection timed out\n", exit(110), 20 * time.Millisecond},
				"hangs, then answers":  {"", nil, 20 * time.Millisecond},
			} {
				what := fmt.Sprintf("read-only %v, call %d, %q %s", readOnly, n, line, how)
				r := busyImage(t, readOnly)
				seen := 0
				r.before = func(l string) (string, error, bool) {
					if seen++; seen == n+1 {
						time.Sleep(answer.wait)
						if answer.err != nil {
							return answer.output, answer.err, true
						}
					}
					return r.blockdev(l)
				}
				device, err := r.ends(what, readOnly)
				if err == nil && (device == "" || readOnly && !r.readOnly) {
					t.Errorf("%s: device %q, read-only %v", what, device, r.readOnly)
				}
				if err != nil && (device != "" || answer.err == nil || len(r.devices()) > 0) {
					t.Errorf("%s: %q, %v, left mapped %v", what, device, err, r.devices())
				}
				if d, err := r.ends(what+", again", readOnly); err != nil || d != r.devices()[0] || len(r.devices()) != 1 || readOnly && !r.readOnly {
					t.Errorf("%s, second try: %q, %v, devices %v, read-only %v", what, d, err, r.devices(), r.readOnly)
				}
				r.end()
			}
		}
	}
}

// unlisted is a mounter whose table of mounts cannot be read.
type unlisted struct{ *mount.FakeMounter }

func (unlisted) List() ([]mount.MountPoint, error) { return nil, errors.New("no /proc/mounts") }

// What has the device mounted is not known: it is not handed out, and unmapped if it can be.
func TestAttachUnknownMounts(t *testing.T) {
	for _, busy := range []bool{false, true} {
		r := newAttachRig(t, true)
		r.host.mounter = unlisted{&mount.FakeMounter{}}
		if busy {
			r.failing("rbd unmap", "(16) Device or resource busy", exit(16))
		}
		log := logOf(t, func() {
			if _, err := r.attach(true); err == nil || !strings.Contains(err.Error(), "no /proc/mounts") || (len(r.devices()) > 0) != busy {
				t.Errorf("busy %v: %v, devices %v", busy, err, r.devices())
			}
		})
		if strings.Contains(log, "stays mapped") != busy {
			t.Errorf("busy %v: log %s", busy, log)
		}
		r.end()
	}
}

// With the gates off nobody looks at the mounts of a device that is found, as in stock.
func TestAttachUnknownMountsGatesOff(t *testing.T) {
	r := newAttachRig(t, false)
	defer r.end()
	r.host.mounter = unlisted{&mount.FakeMounter{}}
	want := r.device(4, testPool, "img", "-", "", "")
	if device, err := r.attach(false); err != nil || device != want || r.commands() != "" {
		t.Errorf("%q, %v: %s", device, err, r.commands())
	}
}

// An address that cannot be read, or a machine that does not tell its own, is another's.
func TestIsLocal(t *testing.T) {
	r := newAttachRig(t, true)
	defer r.end()
	for address, want := range map[string]bool{
		"10.0.0.11:0/5": true, "10.0.0.12:0/5": false, "10.0.0.11": false, "node1:0/5": false, "": false, "[::1]:0/1": false,
	} {
		if got := isLocal(rbdWatcher{address: address}); got != want {
			t.Errorf("%q is local: %v", address, got)
		}
	}
	localAddresses = func() ([]net.Addr, error) { return nil, errors.New("no") }
	if isLocal(rbdWatcher{address: "10.0.0.11:0/5"}) {
		t.Error("local, though no address is known")
	}
}
