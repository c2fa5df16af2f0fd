// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"errors"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
)

const testConfig = "10.0.0.1:6789 name=admin,key=client.admin rbd img -"

// detachRig is a node with the image "img" mapped and mounted.
type detachRig struct {
	*fakeRBD
	host    *fakeHost
	mounter *badMounter
	plugin  *rbdPlugin
	mountAt string
	device  string
}

func newDetachRig(t *testing.T) *detachRig {
	f := newFakeRBD(t)
	h := newFakeHost(f)
	r := &detachRig{fakeRBD: f, host: h, plugin: &rbdPlugin{host: h}}
	r.mountAt = makePDNameInternal(h, testPool, "img")
	f.must(os.MkdirAll(r.mountAt, 0750))
	r.device = f.device(0, testPool, "img", "-", "", testConfig)
	r.mounter = &badMounter{FakeMounter: &mount.FakeMounter{MountPoints: []mount.MountPoint{{Device: r.device, Path: r.mountAt}}}}
	h.mounter = r.mounter
	return r
}

func (r *detachRig) unmount() error {
	d, err := r.plugin.NewDetacher()
	r.must(err)
	return d.UnmountDevice(r.mountAt)
}

// oldFile writes the file of a kubelet up to 1.8, and the lock that it tells of.
func (r *detachRig) oldFile() {
	r.must(ioutil.WriteFile(filepath.Join(r.mountAt, oldRBDFile), []byte(`{"Pool":"rbd","Image":"img","ReadOnly":false,"Mon":["10.0.0.1:6789"],"Id":"admin","Keyring":"","Secret":"`+testKey+`"}`), 0644))
	r.locks = []rbdLock{{ownLockID(), "client.4277", "10.0.0.1:0/1"}}
}

func (r *detachRig) gone(what string) {
	r.t.Helper()
	if _, err := os.Stat(r.mountAt); !os.IsNotExist(err) {
		r.t.Errorf("%s: %s is still there (%v)", what, r.mountAt, err)
	}
	if d := r.devices(); len(d) > 0 {
		r.t.Errorf("%s: still mapped: %v", what, d)
	}
}

const busyText = "rbd: sysfs write failed\nrbd: unmap failed: (16) Device or resource busy\n"

// A failed unmap is repeated to its end; with the gate off it fails for ever.
func TestDetachIsRepeated(t *testing.T) {
	for _, on := range []bool{true, false} {
		restore := gate(t, features.RBDRobustDetach, on)
		r := newDetachRig(t)
		busy := 2
		r.before = func(line string) (string, error, bool) {
			if busy > 0 && strings.HasPrefix(line, "rbd unmap") {
				busy--
				return busyText, exit(16), true
			}
			return "", nil, false
		}
		err := r.unmount()
		if err == nil || !strings.Contains(err.Error(), "Device or resource busy") {
			t.Errorf("gate %v: busy: %v", on, err)
		}
		err = r.unmount()
		if on {
			contains(t, "second try", fmt.Sprint(err), "Device or resource busy")
			r.must(r.unmount())
			r.gone("third try")
			sameCalls(t, r.fakeRBD, "rbd unmap /dev/rbd0", "rbd unmap /dev/rbd0", "rbd unmap /dev/rbd0")
		} else {
			contains(t, "gate off", fmt.Sprint(err), "device is empty")
		}
		if err := r.unmount(); on && err != nil {
			t.Errorf("once more: %v", err)
		}
		r.done()
		restore()
	}
}

// Each thing that can fail fails once, with a lock to release; the second try ends it.
func TestDetachEachFailure(t *testing.T) {
	for name, c := range map[string]struct {
		fails  string
		output string
		code   int
		first  bool // the first try is an error
		locked bool // the lock stays
	}{
		"nothing":              {"none", "", 0, false, false},
		"unmap":                {"rbd unmap", busyText, 16, true, false},
		"unmap killed":         {"rbd unmap", "", 137, true, false},
		"lock list":            {"rbd lock list", "rbd: couldn't connect", 110, false, true},
		"lock list unreadable": {"rbd lock list", "There is 1 exclusive lock on this image.\n", 0, false, true},
		"lock remove":          {"rbd lock remove", "rbd: releasing lock failed: (13) Permission denied", 13, false, true},
	} {
		r := newDetachRig(t)
		r.oldFile()
		failed := false
		r.before = func(line string) (string, error, bool) {
			if failed || !strings.HasPrefix(line, c.fails) {
				return "", nil, false
			}
			failed = true
			if c.code == 0 {
				return c.output, nil, true
			}
			return c.output, exit(c.code), true
		}
		if err := r.unmount(); (err != nil) != c.first {
			t.Errorf("%s: first try: %v", name, err)
		}
		if err := r.unmount(); err != nil {
			t.Errorf("%s: second try: %v", name, err)
		}
		r.gone(name)
		if (len(r.locks) > 0) != c.locked {
			t.Errorf("%s: locks %v", name, r.locks)
		}
		events := r.host.events()
		if strings.Contains(events, "RBDLockKept") != c.locked || c.locked && !strings.Contains(events, ownLockID()) || strings.Contains(events, testKey) {
			t.Errorf("%s: events %q", name, events)
		}
		r.done()
	}
	r := newDetachRig(t)
	defer r.done()
	r.mounter.unmountErr = errors.New("target is busy")
	if err := r.unmount(); err == nil || len(r.calls()) > 0 {
		t.Errorf("umount fails: %v, then %q", err, r.calls())
	}
	r.must(r.unmount())
	r.gone("umount failed once")
}

func TestDetachLeavesOthersLocks(t *testing.T) {
	r := newDetachRig(t)
	defer r.done()
	r.oldFile()
	others := []rbdLock{{ownLockID() + "0", "client.1", "10.0.0.2:0/1"}, {"auto 123", "client.2", "10.0.0.3:0/1"}}
	r.locks = others
	r.must(r.unmount())
	r.gone("others' locks")
	if !reflect.DeepEqual(r.locks, others) {
		t.Errorf("locks %v", r.locks)
	}
}

// The lock is removed without a blocklist entry, by either name of the option, and a file
// that nobody can read does not hold up the rest.
func TestDetachOldFile(t *testing.T) {
	r := newDetachRig(t)
	r.oldFile()
	r.before = func(line string) (string, error, bool) {
		return "rbd: unrecognised option '--rbd_blocklist_on_break_lock=false'\n", exit(1), strings.Contains(line, "blocklist")
	}
	r.must(r.unmount())
	r.gone("old option")
	sameCalls(t, r.fakeRBD, "rbd unmap /dev/rbd0", "rbd lock list img",
		"rbd lock remove img "+ownLockID()+" client.4277 --rbd_blocklist_on_break_lock=false",
		"rbd lock remove img "+ownLockID()+" client.4277 --rbd_blacklist_on_break_lock=false")
	r.done()
	for _, text := range []string{"", "{\"Pool\":", `{"Pool":"rbd"}`, `{"Secret":` + `["` + testKey + `"]}`} {
		r := newDetachRig(t)
		r.must(ioutil.WriteFile(filepath.Join(r.mountAt, oldRBDFile), []byte(text), 0644))
		r.must(r.unmount())
		r.gone(text)
		if e := r.host.events(); !strings.Contains(e, "RBDLockKept") || strings.Contains(e, testKey) {
			t.Errorf("%q: events %q", text, e)
		}
		r.done()
	}
}

func TestDetachGoneDevice(t *testing.T) {
	for _, there := range []bool{false, true} {
		r := newDetachRig(t)
		r.before = func(line string) (string, error, bool) {
			if !strings.HasPrefix(line, "rbd unmap") {
				return "", nil, false
			}
			if !there {
				os.RemoveAll(filepath.Join(sysRBDDevices, "0"))
			}
			return "rbd: unmap failed: (22) Invalid argument\n", exit(22), true
		}
		if err := r.unmount(); (err != nil) != there {
			t.Errorf("exit 22, device there %v: %v", there, err)
		}
		r.done()
	}
}

// The directory's name fits two pairs of pool and image: neither is unmapped.
func TestDetachAmbiguousNames(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	h := newFakeHost(f)
	dir := makePDNameInternal(h, "p", "a-image-b")
	f.must(os.MkdirAll(dir, 0750))
	f.device(0, "p", "a-image-b", "-", "", "")
	f.device(1, "p-image-a", "b", "-", "", "")
	d, err := (&rbdPlugin{host: h}).NewDetacher()
	f.must(err)
	if err := d.UnmountDevice(dir); err == nil || len(f.calls()) > 0 {
		t.Errorf("%v, %q", err, f.calls())
	}
}

// A mapping without a directory, as a failed mount of stock leaves it, goes too.
func TestDetachWithoutDirectory(t *testing.T) {
	r := newDetachRig(t)
	defer r.done()
	r.mounter.MountPoints = nil
	r.must(os.Remove(r.mountAt))
	r.must(r.unmount())
	r.gone("no directory")
	r.must(r.unmount())
	sameCalls(t, r.fakeRBD, "rbd unmap /dev/rbd0")
}

func TestDetachReferences(t *testing.T) {
	r := newDetachRig(t)
	defer r.done()
	r.mounter.MountPoints = append(r.mounter.MountPoints, mount.MountPoint{Device: r.device, Path: "/pods/x"})
	if err := r.unmount(); err == nil || len(r.calls()) > 0 || len(r.mounter.Log) > 0 {
		t.Errorf("%v, %q, %v", err, r.calls(), r.mounter.Log)
	}
}

// While an image is being unmapped its attach waits, and that of another does not.
func TestDetachExcludesAttach(t *testing.T) {
	defer gate(t, features.RBDRobustDetach, true)()
	r := newDetachRig(t)
	defer r.done()
	var once sync.Once
	entered, release := make(chan struct{}), make(chan struct{})
	r.before = func(line string) (string, error, bool) {
		if strings.HasPrefix(line, "rbd unmap") {
			once.Do(func() { close(entered) })
			<-release
		}
		return "", nil, false
	}
	var ended []error
	unmounted, attached := make(chan error, 1), make(chan error, 1)
	go func() { unmounted <- r.unmount() }()
	select {
	case <-entered:
	case err := <-unmounted:
		t.Fatalf("nothing was unmapped: %v", err)
	}
	go func() { _, err := (&RBDUtil{}).AttachDisk(*testMounter(r.host, false)); attached <- err }()
	other := testMounter(r.host, false)
	other.Image = "other"
	if _, err := (&RBDUtil{}).AttachDisk(*other); err != nil {
		t.Errorf("another image: %v", err)
	}
	select {
	case err := <-attached:
		t.Errorf("attached while it is unmapped: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	for len(ended) < 2 {
		select {
		case err := <-unmounted:
			ended = append(ended, err)
		case err := <-attached:
			ended = append(ended, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("one of them hangs: %v", ended)
		}
	}
	if ended[0] != nil || ended[1] != nil {
		t.Errorf("ended with %v", ended)
	}
	lines := strings.Join(r.calls(), "\n")
	if strings.Index(lines, "rbd map img") < strings.Index(lines, "rbd unmap") {
		t.Errorf("commands:\n%s", lines)
	}
}

func (r *detachRig) mountDevice() error {
	a, err := r.plugin.NewAttacher()
	r.must(err)
	return a.MountDevice(volume.NewSpecFromVolume(&v1.Volume{VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{RBDImage: "img", RBDPool: testPool, FSType: "xfs"}}}), r.device, r.mountAt)
}

// What was mapped for a mount that fails is unmapped, and its lock released, unless
// something has it mounted.
func TestFailedMountUnmaps(t *testing.T) {
	for name, c := range map[string]struct{ on, used, mapped bool }{
		"gate on": {true, false, false}, "gate off": {false, false, true}, "mounted elsewhere": {true, true, true},
	} {
		restore := gate(t, features.RBDRobustDetach, c.on)
		r := newDetachRig(t)
		r.mounter.MountPoints = nil
		if c.used {
			r.mounter.MountPoints = []mount.MountPoint{{Device: r.device, Path: "/elsewhere"}}
		}
		r.mounter.mountErr = errors.New("wrong fs type")
		r.oldFile()
		r.before = func(line string) (string, error, bool) { return "ext4\n", nil, strings.HasPrefix(line, "lsblk") }
		if err := r.mountDevice(); err == nil || !strings.Contains(err.Error(), "already contains ext4") {
			t.Errorf("%s: %v", name, err)
		}
		if (len(r.devices()) > 0) != c.mapped || (len(r.locks) > 0) != c.mapped {
			t.Errorf("%s: devices %v, locks %v", name, r.devices(), r.locks)
		}
		if _, err := os.Stat(r.mountAt); c.on && !c.used && !os.IsNotExist(err) {
			t.Errorf("%s: the directory stays: %v", name, err)
		}
		r.done()
		restore()
	}
}

// A device number that was given to another image meanwhile is neither mounted nor unmapped.
func TestOtherImagesDevice(t *testing.T) {
	for _, on := range []bool{true, false} {
		restore := gate(t, features.RBDRobustDetach, on)
		r := newDetachRig(t)
		r.device = r.fakeRBD.device(0, testPool, "another", "-", "", "")
		points := r.mounter.MountPoints
		r.mounter.MountPoints = nil
		err := r.mountDevice()
		if on != (err != nil) || on && len(r.mounter.Log) > 0 {
			t.Errorf("gate %v: mounted: %v, %v", on, err, r.mounter.Log)
		}
		if on {
			r.mounter.MountPoints = points
			if err := r.unmount(); err == nil || len(r.mounter.Log) > 0 || len(r.calls()) > 0 {
				t.Errorf("unmounted: %v, %v, %q", err, r.mounter.Log, r.calls())
			}
		}
		r.done()
		restore()
	}
}
