// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"errors"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// Each command of an attach that takes the lock fails once, is killed once and hangs once.
// Nothing is mapped without the lock, a lock without a mapping does not stay, and the second
// try has both.
func TestLegacyLockEachCall(t *testing.T) {
	r := newLegacyRig(t, true)
	if _, err := r.attach(false); err != nil {
		t.Fatal(err)
	}
	lines := r.calls()
	r.end()
	if strings.Count(strings.Join(lines, "\n"), "rbd ") < 6 {
		t.Fatalf("an attach with the lock runs %q only", lines)
	}
	for n, line := range lines {
		for how, answer := range map[string]struct {
			output string
			err    error
		}{
			"fails":     {"rbd: no\n", exit(1)},
			"is killed": {"", exit(137)},
			"times out": {"(110) Connection timed out\n", exit(110)},
			"hangs":     {"", nil},
		} {
			what := fmt.Sprintf("call %d, %q %s", n, line, how)
			r := newLegacyRig(t, true)
			seen := 0
			r.before = func(l string) (string, error, bool) {
				if seen++; seen == n+1 {
					time.Sleep(2 * time.Millisecond)
					if answer.err != nil {
						return answer.output, answer.err, true
					}
				}
				return r.blockdev(l)
			}
			_, err := r.ends(what, false)
			if (err == nil) != (len(r.devices()) == 1) || err == nil && len(r.locks) != 1 || err != nil && answer.err == nil {
				t.Errorf("%s: %v, devices %v, locks %v", what, err, r.devices(), r.locks)
			}
			// What was mapped and could not be looked at is unmapped: its lock stays, for the next
			// try on this machine, or for the next attach elsewhere, as nobody watches.
			if err != nil && len(r.locks) > 0 && !strings.HasPrefix(line, "blockdev") {
				t.Errorf("%s: locks %v", what, r.locks)
			}
			if _, err := r.ends(what+", again", false); err != nil || len(r.devices()) != 1 {
				t.Errorf("%s, second try: %v, devices %v", what, err, r.devices())
			}
			r.state(what+", second try", true, ownLockID())
			r.end()
		}
	}
}

// A lock that cannot be released after a map that failed is spoken of, and found again.
func TestLegacyLockStays(t *testing.T) {
	r := newLegacyRig(t, true)
	defer r.end()
	failing := true
	r.before = func(l string) (string, error, bool) {
		if failing && (strings.HasPrefix(l, "rbd map") || strings.HasPrefix(l, "rbd lock remove")) {
			return "no right", exit(13), true
		}
		return r.blockdev(l)
	}
	log := logOf(t, func() {
		if _, err := r.attach(false); err == nil {
			t.Error("mapped")
		}
	})
	contains(t, "log", log, "stays after a map that failed", ownLockID())
	r.state("not released", false, ownLockID())
	failing = false
	if _, err := r.attach(false); err != nil {
		t.Error(err)
	}
	r.state("again", true, ownLockID())
}

// Whether another's lock may go is not known, or it cannot be removed: the mount is refused.
func TestLegacyLockOthersUnknown(t *testing.T) {
	for _, fails := range []string{"rbd status", "rbd lock remove", "rbd info"} {
		r := newLegacyRig(t, true)
		gate(t, features.RBDAttachChecks, false)
		r.locks = []rbdLock{{kubeLockMagic + "x", "client.1", "10.0.0.12:0/1"}}
		seen := 0
		r.before = func(l string) (string, error, bool) {
			if strings.HasPrefix(l, fails) {
				if seen++; fails != "rbd status" || seen == 2 { // the first is stock's own look
					if fails == "rbd info" {
						return "no JSON", nil, true
					}
					return "no", exit(1), true
				}
			}
			return r.blockdev(l)
		}
		if _, err := r.attach(false); err == nil || len(r.devices()) > 0 {
			t.Errorf("%s fails: %v, %v", fails, err, r.devices())
		}
		r.state(fails+" fails", false, kubeLockMagic+"x")
		r.end()
	}
}

// unknownPoint is a mounter that cannot say what a mount point is.
type unknownPoint struct{ *mount.FakeMounter }

func (unknownPoint) IsLikelyNotMountPoint(string) (bool, error) { return true, errors.New("no stat") }

// Without rbd.json no lock is taken: nobody could release it.
func TestLegacyLockWithoutFile(t *testing.T) {
	for name, set := range map[string]func(*legacyRig){
		"not known what is mounted": func(r *legacyRig) { r.host.mounter = unknownPoint{&mount.FakeMounter{}} },
		"a folder in its place": func(r *legacyRig) {
			r.must(os.MkdirAll(filepath.Join(r.file, "x"), 0755))
		},
	} {
		r := newLegacyRig(t, true)
		set(r)
		if _, err := r.attach(false); err == nil || strings.Contains(r.commands(), "lock add") || len(r.devices()) > 0 {
			t.Errorf("%s: %v: %s", name, err, r.commands())
		}
		r.end()
	}
	// The file that 1.7 wrote, for everyone to read, is written anew.
	r := newLegacyRig(t, true)
	defer r.end()
	r.must(os.MkdirAll(filepath.Dir(r.file), 0755))
	r.must(ioutil.WriteFile(r.file, []byte("old"), 0644))
	if _, err := r.attach(false); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(r.file); err != nil || info.Mode().Perm() != 0600 {
		t.Errorf("%v, %v", info, err)
	}
}
