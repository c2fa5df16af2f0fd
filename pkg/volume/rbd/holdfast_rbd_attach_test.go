// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
)

var foreignWatcher = rbdWatcher{"10.0.0.12:0/710245699", "client.14163"}

// attachRig is a node whose sleeps are recorded and take no time.
type attachRig struct {
	*fakeRBD
	host    *fakeHost
	mounter *badMounter
	slept   []time.Duration
	// onSleep is called at each sleep.
	onSleep func(n int)
	// readOnly is what blockdev says of every device.
	readOnly bool
	undo     []func()
}

func newAttachRig(t *testing.T, on bool) *attachRig {
	f := newFakeRBD(t)
	r := &attachRig{fakeRBD: f, host: newFakeHost(f)}
	r.mounter = &badMounter{FakeMounter: &mount.FakeMounter{}}
	r.host.mounter = r.mounter
	wasSleep, wasAddresses := sleep, localAddresses
	sleep = func(d time.Duration) {
		r.slept = append(r.slept, d)
		if r.onSleep != nil {
			r.onSleep(len(r.slept))
		}
	}
	localAddresses = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("127.0.0.1")}, &net.IPNet{IP: net.ParseIP("10.0.0.11")}}, nil
	}
	r.before = r.blockdev
	r.undo = []func(){gate(t, features.RBDAttachChecks, on), func() { sleep, localAddresses = wasSleep, wasAddresses }}
	return r
}

func (r *attachRig) end() {
	r.done()
	for _, u := range r.undo {
		u()
	}
}

// blockdev answers for a device, and fails nothing else.
func (r *attachRig) blockdev(line string) (string, error, bool) {
	switch {
	case strings.HasPrefix(line, "blockdev --getro"):
		return map[bool]string{true: "1\n", false: "0\n"}[r.readOnly], nil, true
	case strings.HasPrefix(line, "blockdev --set"):
		r.readOnly = strings.Contains(line, "--setro")
		return "", nil, true
	}
	return "", nil, false
}

func (r *attachRig) failing(prefix, output string, err error) {
	r.before = func(line string) (string, error, bool) {
		if strings.HasPrefix(line, prefix) {
			return output, err, true
		}
		return r.blockdev(line)
	}
}

func (r *attachRig) attach(readOnly bool) (string, error) {
	return (&RBDUtil{}).AttachDisk(*testMounter(r.host, readOnly))
}

// lines are the commands but modprobe and questions to blockdev.
func (r *attachRig) commands() string {
	var lines []string
	for _, l := range r.calls() {
		if l != "modprobe rbd" && !strings.HasPrefix(l, "blockdev --getro") {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "; ")
}

// How often rbd runs for one attach: status and map in stock, two calls more in ours.
func TestAttachCalls(t *testing.T) {
	for on, want := range map[bool]string{false: "rbd status img; rbd map img", true: "rbd status img; rbd lock list img; rbd map img; rbd status img"} {
		r := newAttachRig(t, on)
		device, err := r.attach(false)
		if err != nil || device != r.devices()[0] || r.commands() != want || len(r.slept) > 0 {
			t.Errorf("gate %v: %s, %v: %s (slept %v)", on, device, err, r.commands(), r.slept)
		}
		// What is mapped and not mounted is looked at once more.
		if d, err := r.attach(false); err != nil || d != device || r.commands() != want+map[bool]string{true: "; rbd status img"}[on] {
			t.Errorf("gate %v, mapped already: %s, %v: %s", on, d, err, r.commands())
		}
		r.end()
	}
	// Without a key the keyring is given to every command, gate or not.
	for _, on := range []bool{true, false} {
		r := newAttachRig(t, on)
		m := testMounter(r.host, false)
		m.Secret, m.Keyring = "", "/x/keyring"
		if _, err := (&RBDUtil{}).AttachDisk(*m); err != nil {
			t.Error(err)
		}
		for _, args := range r.raw {
			if line := strings.Join(args, " "); args[0] == "rbd" && (strings.Contains(line, "--key=") || !strings.Contains(line, "/x/keyring")) {
				t.Errorf("gate %v: %s", on, line)
			}
		}
		r.end()
	}
	r := newAttachRig(t, true)
	defer r.end()
	m := testMounter(r.host, false)
	m.Secret, m.Keyring = "", "/x/keyring"
	if _, err := (&RBDUtil{}).rbdInfo(m); err != nil || !strings.Contains(strings.Join(r.raw[0], " "), "--keyring=/x/keyring") {
		t.Errorf("info: %q, %v", r.raw, err)
	}
	if _, _, err := (&RBDUtil{}).rbdStatus(m); err != nil || !strings.Contains(strings.Join(r.raw[1], " "), "--keyring=/x/keyring") {
		t.Errorf("status: %q, %v", r.raw, err)
	}
	// The controller manager's admin has no keyring: as stock.
	m.Keyring = ""
	if got := keyOption(m, ""); got != "--key=" {
		t.Errorf("neither: %s", got)
	}
}

// The watchers are looked at ten times within 49 s; the error and the pod's event name them.
func TestAttachLooksAgain(t *testing.T) {
	r := newAttachRig(t, true)
	r.watchers = []rbdWatcher{foreignWatcher, {"10.0.0.11:0/5", "client.5"}}
	_, err := r.attach(false)
	contains(t, "error", fmt.Sprint(err), "rbd image rbd/img is still being used", "watcher=10.0.0.12:0/710245699 client.14163, ", "watcher=10.0.0.11:0/5 client.5 (this node's own)")
	if n := strings.Count(r.commands(), "rbd status"); n != 10 || strings.Contains(r.commands(), "map") {
		t.Errorf("%d looks: %s", n, r.commands())
	}
	sum := time.Duration(0)
	for _, d := range r.slept {
		sum += d
	}
	if len(r.slept) != 9 || sum < 49*time.Second || sum > 50*time.Second {
		t.Errorf("slept %v, %v in all", r.slept, sum)
	}
	r.end()

	r = newAttachRig(t, true)
	r.watchers = []rbdWatcher{foreignWatcher}
	r.onSleep = func(n int) {
		if n == 3 {
			r.watchers = nil
		}
	}
	if _, err := r.attach(false); err != nil || strings.Count(r.commands(), "rbd status") != 5 || !strings.HasSuffix(r.commands(), "rbd map img; rbd status img") {
		t.Errorf("the watcher goes: %v: %s", err, r.commands())
	}
	r.end()

	r = newAttachRig(t, false)
	r.watchers = []rbdWatcher{foreignWatcher}
	if _, err := r.attach(false); err == nil || len(r.slept) > 0 || r.commands() != "rbd status img" {
		t.Errorf("gate off: %v: %s", err, r.commands())
	}
	r.end()
}

// A question that fails or cannot be read ends the attach before the map.
func TestAttachFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fails, output string
		err           error
		mapped        bool
	}{
		"status":              {"rbd status", "rbd: couldn't connect to the cluster", exit(1), false},
		"status times out":    {"rbd status", "rbd: couldn't connect: (110) Connection timed out", exit(110), false},
		"status unreadable":   {"rbd status", "2019 -1 x\n", nil, false},
		"lock list":           {"rbd lock list", "no right", exit(13), true},
		"lock list times out": {"rbd lock list", "(110) Connection timed out", exit(110), true},
		"map":                 {"rbd map", "rbd: map failed: (16) Device or resource busy", exit(16), false},
	} {
		r := newAttachRig(t, true)
		r.failing(c.fails, c.output, c.err)
		_, err := r.attach(false)
		if (err == nil) != c.mapped || (len(r.devices()) > 0) != c.mapped {
			t.Errorf("%s: %v, mapped %v", name, err, r.devices())
		}
		if err != nil && c.err != nil {
			contains(t, name, err.Error(), c.output)
		}
		r.before = r.blockdev
		if _, err := r.attach(false); err != nil {
			t.Errorf("%s, second try: %v", name, err)
		}
		r.end()
	}
}

// Locks of kubelets up to 1.8 go from an image that nobody watches, no others do, and none
// if somebody comes.
func TestAttachClearsOldLocks(t *testing.T) {
	old := []rbdLock{{kubeLockMagic + "node10", "client.4", "10.0.0.13:0/1"}, {ownLockID(), "client.5", "10.0.0.11:0/1"}}
	other := rbdLock{"auto 18446462598732840961", "client.6", "10.0.0.14:0/1"}
	r := newAttachRig(t, true)
	r.locks = append([]rbdLock{other}, old...)
	if _, err := r.attach(false); err != nil || len(r.locks) != 1 || r.locks[0] != other {
		t.Errorf("%v, left %v", err, r.locks)
	}
	if want := "rbd status img; rbd lock list img; rbd status img; rbd lock remove img kubelet_lock_magic_node10 client.4 --rbd_blocklist_on_break_lock=false; " +
		"rbd status img; rbd lock remove img " + ownLockID() + " client.5 --rbd_blocklist_on_break_lock=false; rbd map img; rbd status img"; r.commands() != want {
		t.Errorf("commands %s\nwant %s", r.commands(), want)
	}
	contains(t, "events", r.host.events(), "RBDLockRemoved", kubeLockMagic+"node10", "client.4", "10.0.0.13:0/1")
	r.end()

	// Its holder maps between the two looks: the lock stays, and the image is in use.
	r = newAttachRig(t, true)
	r.locks = append([]rbdLock{}, old...)
	r.onSleep = func(int) { r.watchers = []rbdWatcher{foreignWatcher} }
	if _, err := r.attach(false); err == nil || len(r.locks) != 2 || strings.Contains(r.commands(), "remove") || strings.Contains(r.commands(), "map") {
		t.Errorf("%v, left %v: %s", err, r.locks, r.commands())
	}
	r.end()

	// The second look fails.
	r = newAttachRig(t, true)
	r.locks = append([]rbdLock{}, old...)
	r.onSleep = func(int) { r.failing("rbd status", "no", exit(1)) }
	if _, err := r.attach(false); err == nil || len(r.locks) != 2 {
		t.Errorf("%v, left %v", err, r.locks)
	}
	r.end()

	// No right to remove: an event, and the map is tried all the same.
	r = newAttachRig(t, true)
	r.locks = append([]rbdLock{}, old...)
	r.failing("rbd lock remove", "(13) Permission denied", exit(13))
	if _, err := r.attach(false); err != nil || len(r.locks) != 2 {
		t.Errorf("%v, left %v", err, r.locks)
	}
	contains(t, "events", r.host.events(), "RBDLockKept", "Permission denied")
	r.end()

	// A server that a pod names lists locks without end.
	r = newAttachRig(t, true)
	for i := 0; i < 3*maxOldLocks; i++ {
		r.locks = append(r.locks, rbdLock{fmt.Sprintf("%snode%d", kubeLockMagic, i), "client.4", "10.0.0.13:0/1"})
	}
	if _, err := r.attach(false); err != nil || len(r.locks) != 2*maxOldLocks {
		t.Errorf("%v, left %d", err, len(r.locks))
	}
	r.end()

	r = newAttachRig(t, false)
	r.locks = append([]rbdLock{}, old...)
	if _, err := r.attach(false); err != nil || len(r.locks) != 2 {
		t.Errorf("gate off: %v, left %v", err, r.locks)
	}
	r.end()
}

// Another client opens the image between the look and the map: what writes gives way, and is
// mapped when that one has gone; what reads is protected.
func TestAttachLooksAfterMap(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		r := newAttachRig(t, true)
		r.before = func(line string) (string, error, bool) {
			if strings.HasPrefix(line, "rbd map") {
				r.watchers = append(r.watchers, foreignWatcher)
			}
			return r.blockdev(line)
		}
		_, err := r.attach(readOnly)
		if readOnly {
			if err != nil || !r.readOnly {
				t.Errorf("read-only: %v, device read-only %v", err, r.readOnly)
			}
			r.end()
			continue
		}
		contains(t, "error", fmt.Sprint(err), "opened by another client", "watcher=10.0.0.12:0/710245699 client.14163")
		if len(r.devices()) > 0 {
			t.Errorf("left mapped: %v", r.devices())
		}
		r.before, r.watchers = r.blockdev, nil
		if _, err := r.attach(false); err != nil || len(r.devices()) != 1 {
			t.Errorf("when the other has gone: %v, devices %v", err, r.devices())
		}
		r.end()
	}
	// The node's own watch has the address that Ceph sees, which need not be one of its interfaces.
	r := newAttachRig(t, true)
	defer r.end()
	localAddresses = func() ([]net.Addr, error) { return nil, nil }
	if _, err := r.attach(false); err != nil {
		t.Errorf("behind another address: %v", err)
	}
}

// The pod hears why it waits.
func TestAttachEvent(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := newAttachRig(t, on)
		r.watchers = []rbdWatcher{foreignWatcher}
		a, err := (&rbdPlugin{host: r.host}).NewAttacher()
		r.must(err)
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID("u")}}
		spec := volume.NewSpecFromVolume(&v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"10.0.0.1:6789"}, RBDImage: "img", RBDPool: testPool, RadosUser: "admin"}}})
		if _, err := a.WaitForAttach(spec, "", pod, time.Minute); err == nil {
			t.Error("attached")
		}
		events := r.host.events()
		if !on && events != "" {
			t.Errorf("gate off: %s", events)
		}
		if on {
			contains(t, "event", events, "Warning FailedMount", `volume "data"`, "watcher=10.0.0.12:0/710245699 client.14163")
		}
		r.end()
	}
}

// What a server names as watchers makes one line within its bound.
func TestWatchersTextBounded(t *testing.T) {
	for _, name := range []string{"client.1", strings.Repeat("x", 1<<20), "a\nE1127 forged"} {
		got := watchersText([]rbdWatcher{{name, name}, {name, name}})
		if len(got) > maxShownText+3 || strings.Contains(got, "\n") || got == "" {
			t.Errorf("%d bytes: %.60q", len(got), got)
		}
	}
}
