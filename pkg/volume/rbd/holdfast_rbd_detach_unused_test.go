// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// unusedRig is a node whose device is mapped and not mounted, and whose delays take no time.
type unusedRig struct {
	*detachRig
	delays []time.Duration
	later  []func()
}

func newUnusedRig(t *testing.T) (*unusedRig, func()) {
	r := &unusedRig{detachRig: newDetachRig(t)}
	r.mounter.MountPoints = nil
	was := afterDelay
	afterDelay = func(d time.Duration, f func()) {
		r.delays = append(r.delays, d)
		r.later = append(r.later, f)
	}
	restore := gate(t, features.RBDRobustDetach, true)
	return r, func() {
		afterDelay = was
		restore()
		r.done()
	}
}

// next runs what waits, and says whether anything did.
func (r *unusedRig) next() bool {
	if len(r.later) == 0 {
		return false
	}
	f := r.later[0]
	r.later = r.later[1:]
	f()
	return true
}

// busy lets the first n unmaps fail.
func (r *unusedRig) busy(n int) {
	r.before = func(line string) (string, error, bool) {
		if n > 0 && strings.HasPrefix(line, "rbd unmap") {
			n--
			return busyText, exit(16), true
		}
		return "", nil, false
	}
}

func (r *unusedRig) fail() {
	defer lockImage(r.mountAt)()
	a, err := r.plugin.newAttacherInternal(&RBDUtil{})
	r.must(err)
	a.(*rbdAttacher).afterFailedMount(r.device, r.mountAt)
}

// After a failed mount a device that is busy is unmapped later, and its lock released; the
// operator hears of it once.
func TestUnusedIsUnmappedLater(t *testing.T) {
	for n := 0; n <= 3; n++ {
		r, end := newUnusedRig(t)
		r.oldFile()
		r.busy(n)
		r.fail()
		for r.next() {
		}
		if len(r.devices()) > 0 || len(r.locks) > 0 || len(r.delays) != n {
			t.Errorf("busy %d times: devices %v, locks %v, waited %v", n, r.devices(), r.locks, r.delays)
		}
		want := 0
		if n > 0 {
			want = 1
		}
		if got := strings.Count(r.host.events(), "RBDDeviceKept"); got != want {
			t.Errorf("busy %d times: %d events, want %d", n, got, want)
		}
		end()
	}
}

// It ends: after 40 minutes, when the image is attached anew, mounted, or the number another's.
func TestUnusedEnds(t *testing.T) {
	r, end := newUnusedRig(t)
	r.busy(1000)
	r.fail()
	sum := time.Duration(0)
	for r.next() {
		if len(r.delays) > 100 {
			t.Fatal("it goes on for ever")
		}
	}
	for _, d := range r.delays {
		sum += d
	}
	if len(r.delays) != 12 || sum < 40*time.Minute || sum > 41*time.Minute {
		t.Errorf("%d tries within %v: %v", len(r.delays), sum, r.delays)
	}
	events := r.host.events()
	contains(t, "events", events, "trying again", "unmap it by hand", r.device, "Device or resource busy")
	if n := strings.Count(events, "RBDDeviceKept"); n != 2 {
		t.Errorf("%d events: %s", n, events)
	}
	end()

	for name, meanwhile := range map[string]func(*unusedRig){
		"attached": func(r *unusedRig) { beginAttach(r.mountAt)() },
		"mounted":  func(r *unusedRig) { r.mounter.MountPoints = []mount.MountPoint{{Device: r.device, Path: "/x"}} },
		"another":  func(r *unusedRig) { r.fakeRBD.device(0, testPool, "another", "-", "", "") },
	} {
		r, end := newUnusedRig(t)
		r.busy(1)
		r.fail()
		meanwhile(r)
		if !r.next() || r.next() || len(r.devices()) != 1 {
			t.Errorf("%s meanwhile: devices %v, %d waiting", name, r.devices(), len(r.later))
		}
		if n := strings.Count(strings.Join(r.calls(), "\n"), "rbd unmap"); n != 1 {
			t.Errorf("%s meanwhile: %d unmaps", name, n)
		}
		end()
	}
}

// The table of mounts cannot be read: the kernel unmaps nothing that is mounted.
func TestUnusedUnknownMounts(t *testing.T) {
	r, end := newUnusedRig(t)
	defer end()
	r.host.mounter = unlistedDetach{r.mounter}
	r.busy(1)
	r.fail()
	if len(r.devices()) != 1 || !r.next() || len(r.devices()) > 0 {
		t.Errorf("devices %v", r.devices())
	}
}

// With the gate off nothing is unmapped, as in stock.
func TestUnusedGateOff(t *testing.T) {
	r, end := newUnusedRig(t)
	defer end()
	defer gate(t, features.RBDRobustDetach, false)()
	r.fail()
	(&RBDUtil{}).afterMapTimeout(testMounter(r.host, false), r.mountAt)
	if len(r.calls()) > 0 || len(r.delays) > 0 {
		t.Errorf("ran %q, waits %v", r.calls(), r.delays)
	}
}

// A device that does not appear in time is unmapped again, with the lock that was taken for it. It
// takes the 9 s that upstream waits.
func TestMapTimeout(t *testing.T) {
	r, end := newUnusedRig(t)
	defer end()
	r.must(os.RemoveAll(filepath.Join(sysRBDDevices, "0")))
	r.must(os.Remove(r.device))
	mapped := false
	r.before = func(line string) (string, error, bool) {
		switch {
		case strings.HasPrefix(line, "rbd map"):
			mapped = true
			r.fakeRBD.device(3, testPool, "img", "-", "", "")
			r.must(os.Remove(devRBD + "3"))
			r.oldFile()
			return "", nil, true
		case strings.HasPrefix(line, "rbd unmap"):
			mapped = false
			r.must(os.RemoveAll(filepath.Join(sysRBDDevices, "3")))
			return "", nil, true
		}
		return "", nil, false
	}
	_, err := (&RBDUtil{}).AttachDisk(*testMounter(r.host, false))
	if err == nil || !strings.Contains(err.Error(), "Timeout after 10s") || mapped || len(r.locks) > 0 {
		t.Errorf("%v, mapped %v, locks %v: %q", err, mapped, r.locks, r.calls())
	}
}

// A device that is mapped no longer is not mounted: mount would make a filesystem on whatever
// gets its number next. Where the kernel shows no devices it is not known.
func TestMountOfUnmappedDevice(t *testing.T) {
	for _, shown := range []bool{true, false} {
		r, end := newUnusedRig(t)
		r.must(os.RemoveAll(filepath.Join(sysRBDDevices, "0")))
		if !shown {
			r.must(os.RemoveAll(sysRBDDevices))
		}
		r.before = func(line string) (string, error, bool) { return "xfs\n", nil, strings.HasPrefix(line, "lsblk") }
		if err := r.mountDevice(); (err != nil) != shown || shown && (len(r.mounter.Log) > 0 || !strings.Contains(err.Error(), "mapped no longer")) {
			t.Errorf("shown %v: %v, %v", shown, err, r.mounter.Log)
		}
		end()
	}
}

// A pod gets the image's mount or nothing, never the directory below it.
func TestBindMount(t *testing.T) {
	r, end := newUnusedRig(t)
	defer end()
	if err := bindMount(r.mounter, r.mountAt, "/pods/x", []string{"bind"}); err == nil || len(r.mounter.Log) > 0 {
		t.Errorf("nothing is mounted: %v, %v", err, r.mounter.Log)
	}
	r.mounter.MountPoints = []mount.MountPoint{{Device: r.device, Path: r.mountAt}}
	unlock, bound := lockImage(r.mountAt), make(chan error, 1)
	go func() { bound <- bindMount(r.mounter, r.mountAt, "/pods/x", []string{"bind"}) }()
	select {
	case err := <-bound:
		t.Errorf("bound beside another operation: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	unlock()
	if err := <-bound; err != nil {
		t.Error(err)
	}
	defer gate(t, features.RBDRobustDetach, false)()
	defer lockImage(r.mountAt)()
	r.mounter.MountPoints = nil
	if err := bindMount(r.mounter, r.mountAt, "/pods/y", []string{"bind"}); err != nil {
		t.Errorf("gate off: %v", err)
	}
}
