// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

type legacyRig struct {
	*attachRig
	file string
}

func newLegacyRig(t *testing.T, on bool) *legacyRig {
	r := &legacyRig{attachRig: newAttachRig(t, true)}
	r.undo = append(r.undo, gate(t, features.RBDLegacyLock, on))
	r.file = filepath.Join(makePDNameInternal(r.host, testPool, "img"), legacyFileName)
	return r
}

func (r *legacyRig) state(name string, wantFile bool, wantLocks ...string) {
	r.t.Helper()
	if _, err := os.Stat(r.file); (err == nil) != wantFile {
		r.t.Errorf("%s: rbd.json: %v", name, err)
	}
	var ids []string
	for _, l := range r.locks {
		ids = append(ids, l.id)
	}
	if strings.Join(ids, " ") != strings.Join(wantLocks, " ") {
		r.t.Errorf("%s: locks %q, want %q", name, ids, wantLocks)
	}
}

// The lock is taken before the map, what 1.7 reads is written before the mount, and a
// detach releases both, whatever the gates are by then.
func TestLegacyLock(t *testing.T) {
	for _, robust := range []bool{true, false} {
		r := newLegacyRig(t, true)
		device, err := r.attach(false)
		if err != nil {
			t.Fatal(err)
		}
		lines := r.commands()
		if add, m := strings.Index(lines, "rbd lock add img "+ownLockID()), strings.Index(lines, "rbd map"); add < 0 || add > m {
			t.Errorf("commands %s", lines)
		}
		r.state("attached", true, ownLockID())
		info, err := os.Stat(r.file)
		r.must(err)
		text, err := ioutil.ReadFile(r.file)
		r.must(err)
		// Decoded by 1.7.0's loadRBD, and its own text but for the blank end.
		want := `{"Pool":"rbd","Image":"img","ReadOnly":false,"Mon":["10.0.0.1:6789"],"Id":"admin","Keyring":"","Secret":"` + testKey + `"}` + "\n"
		if info.Mode().Perm() != 0600 || string(text) != want {
			t.Errorf("mode %v, %s", info.Mode(), text)
		}
		restore := gate(t, "RBDRobustDetach", robust)
		gate(t, features.RBDLegacyLock, false)
		if err := (&RBDUtil{}).DetachDisk(&rbdPlugin{host: r.host}, filepath.Dir(r.file), device); err != nil {
			t.Error(err)
		}
		r.state("detached", false)
		restore()
		r.end()
	}
}

func TestLegacyLockNotTaken(t *testing.T) {
	for name, c := range map[string]struct{ on, readOnly, exclusive bool }{
		"gate off":       {false, false, false},
		"read-only":      {true, true, false},
		"exclusive-lock": {true, false, true},
	} {
		r := newLegacyRig(t, c.on)
		if c.exclusive {
			r.features = `"layering","exclusive-lock"`
		}
		if _, err := r.attach(c.readOnly); err != nil || strings.Contains(r.commands(), "lock add") {
			t.Errorf("%s: %v: %s", name, err, r.commands())
		}
		if !c.on && strings.Contains(r.commands(), "rbd info") {
			t.Errorf("gate off: %s", r.commands())
		}
		r.state(name, false)
		r.end()
	}
}

// Other locks: this machine's own is kept, an old one that nobody watches for goes, what no
// kubelet took and what is in use refuse.
func TestLegacyLockOthers(t *testing.T) {
	for name, c := range map[string]struct {
		lock     rbdLock
		attached bool
		left     string
	}{
		"own":                {rbdLock{ownLockID(), "client.1", "10.0.0.11:0/1"}, true, ownLockID()},
		"own name as prefix": {rbdLock{ownLockID() + "0", "client.1", "10.0.0.12:0/1"}, true, ownLockID()},
		"another's":          {rbdLock{kubeLockMagic + "x", "client.1", "10.0.0.12:0/1"}, true, ownLockID()},
		"no kubelet's":       {rbdLock{"backup", "client.1", "10.0.0.12:0/1"}, false, "backup"},
	} {
		for _, checks := range []bool{true, false} {
			r := newLegacyRig(t, true)
			gate(t, features.RBDAttachChecks, checks)
			r.locks = []rbdLock{c.lock}
			if _, err := r.attach(false); (err == nil) != c.attached {
				t.Errorf("%s, checks %v: %v", name, checks, err)
			}
			r.state(name, c.attached, c.left)
			if c.lock.id == ownLockID() && (strings.Contains(r.commands(), "lock add") || strings.Contains(r.commands(), "lock remove")) {
				t.Errorf("%s: %s", name, r.commands())
			}
			r.end()
		}
	}
	// Its holder maps before the lock is removed.
	r := newLegacyRig(t, true)
	defer r.end()
	gate(t, features.RBDAttachChecks, false)
	r.locks = []rbdLock{{kubeLockMagic + "x", "client.1", "10.0.0.12:0/1"}}
	r.before = func(line string) (string, error, bool) {
		if strings.HasPrefix(line, "rbd info") {
			r.watchers = []rbdWatcher{foreignWatcher}
		}
		return r.blockdev(line)
	}
	if _, err := r.attach(false); err == nil || strings.Contains(r.commands(), "remove") || strings.Contains(r.commands(), "map") {
		t.Errorf("%v: %s", err, r.commands())
	}
	r.state("in use", false, kubeLockMagic+"x")
}

// A lock that a kubelet up to 1.8 has taken since the first look is left to it for as long as
// it may need to map.
func TestLegacyLockTakenMeanwhile(t *testing.T) {
	for _, checks := range []bool{true, false} {
		r := newLegacyRig(t, true)
		gate(t, features.RBDAttachChecks, checks)
		other := rbdLock{kubeLockMagic + "x", "client.1", "10.0.0.12:0/1"}
		r.before = func(line string) (string, error, bool) {
			if strings.HasPrefix(line, "rbd info") {
				r.locks = []rbdLock{other}
			}
			return r.blockdev(line)
		}
		r.onSleep = func(int) { r.watchers = []rbdWatcher{foreignWatcher} }
		if _, err := r.attach(false); err == nil || len(r.devices()) > 0 || strings.Contains(r.commands(), "remove") {
			t.Errorf("checks %v: %v: %s", checks, err, r.commands())
		}
		r.state("taken meanwhile", false, other.id)
		r.end()
	}
}

// An image with exclusive-lock cannot be mapped with a lock that an old kubelet of this
// machine left, and one that is mounted read-only needs none.
func TestLegacyLockOwnStale(t *testing.T) {
	for name, c := range map[string]struct{ readOnly, exclusive bool }{
		"exclusive-lock":            {false, true},
		"exclusive-lock, read-only": {true, true},
		"read-only":                 {true, false},
	} {
		r := newLegacyRig(t, true)
		if c.exclusive {
			r.features = `"layering","exclusive-lock"`
		}
		r.locks = []rbdLock{{ownLockID(), "client.1", "10.0.0.11:0/1"}}
		if _, err := r.attach(c.readOnly); err != nil {
			t.Errorf("%s: %v: %s", name, err, r.commands())
		}
		r.state(name, false)
		r.end()
	}
}

// What was mapped before, without the lock, is mapped anew with it, unless it is mounted.
func TestLegacyLockFoundDevice(t *testing.T) {
	for _, checks := range []bool{true, false} {
		r := newLegacyRig(t, true)
		gate(t, features.RBDAttachChecks, checks)
		device := r.device(4, testPool, "img", "-", "", "")
		r.mounter.FakeMounter.MountPoints = []mount.MountPoint{{Device: device, Path: "/x"}}
		if got, err := r.attach(false); err != nil || got != device {
			t.Errorf("mounted: %q, %v", got, err)
		}
		r.state("mounted", false)
		r.mounter.FakeMounter.MountPoints = nil
		if _, err := r.attach(false); err == nil || len(r.devices()) > 0 {
			t.Errorf("first try: %v, devices %v", err, r.devices())
		}
		if _, err := r.attach(false); err != nil {
			t.Errorf("second try: %v", err)
		}
		r.state("second try", true, ownLockID())
		r.end()
	}
}

// Each call fails once: nothing is mapped without the lock, nothing of it is left, and the
// second try has both.
func TestLegacyLockFailures(t *testing.T) {
	for _, fails := range []string{"rbd info", "rbd lock list", "rbd lock add", "rbd map", "blockdev --getro"} {
		r := newLegacyRig(t, true)
		seen := 0
		r.before = func(line string) (string, error, bool) {
			if strings.HasPrefix(line, fails) {
				// The first list is of the check before, which goes on without it.
				if seen++; seen == 1 && fails != "rbd lock list" || seen == 2 && fails == "rbd lock list" {
					return "no", exit(1), true
				}
			}
			return r.blockdev(line)
		}
		if _, err := r.attach(false); err == nil || len(r.devices()) > 0 {
			t.Errorf("%s fails: %v, %v", fails, err, r.devices())
		}
		r.state(fails+" fails", false)
		if _, err := r.attach(false); err != nil {
			t.Errorf("%s, second try: %v", fails, err)
		}
		r.state(fails+", second try", true, ownLockID())
		r.end()
	}
	// An own lock from before stays when the map fails.
	r := newLegacyRig(t, true)
	defer r.end()
	r.locks = []rbdLock{{ownLockID(), "client.1", "10.0.0.11:0/1"}}
	r.failing("rbd map", "no", exit(1))
	if _, err := r.attach(false); err == nil {
		t.Error("mapped")
	}
	r.state("own lock, map fails", true, ownLockID())
	// Nothing is written into what is mounted.
	r.must(os.Remove(r.file))
	r.mounter.FakeMounter.MountPoints = []mount.MountPoint{{Device: "/dev/x", Path: filepath.Dir(r.file)}}
	if _, err := r.attach(false); err == nil {
		t.Error("mapped below a mount")
	}
	r.state("mounted", false, ownLockID())
}
