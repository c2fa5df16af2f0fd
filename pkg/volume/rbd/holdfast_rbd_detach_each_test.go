// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
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

// Each command of a detach hangs once and then succeeds: the detach waits, and ends with
// nothing mapped and nothing on disk. (That each fails once is TestDetachEachFailure.)
func TestDetachEachCallHangs(t *testing.T) {
	defer func(was time.Duration) { slowCommand = was }(slowCommand)
	slowCommand = 5 * time.Millisecond
	r := newDetachRig(t)
	r.oldFile()
	r.must(r.unmount())
	lines := r.calls()
	r.done()
	if len(lines) != 3 {
		t.Fatalf("a detach with an old lock runs %q", lines)
	}
	for _, line := range lines {
		r := newDetachRig(t)
		r.oldFile()
		r.before = func(l string) (string, error, bool) {
			if l == line {
				time.Sleep(30 * time.Millisecond)
			}
			return "", nil, false
		}
		if err := r.unmount(); err != nil {
			t.Errorf("%q hangs: %v", line, err)
		}
		r.gone(line)
		if len(r.locks) > 0 {
			t.Errorf("%q hangs: locks %v", line, r.locks)
		}
		if e := r.host.events(); strings.Contains(e, "RBDCommandSlow") != strings.HasPrefix(line, "rbd unmap") {
			t.Errorf("%q hangs: events %q", line, e)
		}
		r.done()
	}
}

// noSysfs lets sysfs be a file, which is no answer to what is mapped.
func (r *detachRig) noSysfs() {
	r.must(os.RemoveAll(sysRBDDevices))
	r.must(ioutil.WriteFile(sysRBDDevices, nil, 0644))
}

// unreadable makes an attribute of device 0 one that cannot be read.
func (r *detachRig) unreadable(attribute string) {
	p := filepath.Join(sysRBDDevices, "0", attribute)
	r.must(os.Remove(p))
	r.must(os.Mkdir(p, 0755))
}

// Where the kernel's list cannot be read, nothing is unmapped and nothing is called done.
func TestDetachWithoutSysfs(t *testing.T) {
	for name, set := range map[string]func(*detachRig){
		"no list":                        func(r *detachRig) { r.mounter.MountPoints = nil; r.noSysfs() },
		"no list, no directory":          func(r *detachRig) { r.mounter.MountPoints = nil; r.noSysfs(); r.must(os.Remove(r.mountAt)) },
		"no pool":                        func(r *detachRig) { r.mounter.MountPoints = nil; r.unreadable("pool") },
		"no pool, mounted":               func(r *detachRig) { r.unreadable("pool") },
		"the mounts cannot be listed":    func(r *detachRig) { r.host.mounter = unlistedDetach{r.mounter} },
		"a file is where the mount was":  func(r *detachRig) { r.mounter.MountPoints = nil; r.blocked() },
		"rbd.json is a folder with more": func(r *detachRig) { r.must(os.MkdirAll(filepath.Join(r.mountAt, oldRBDFile, "x"), 0755)) },
	} {
		r := newDetachRig(t)
		set(r)
		if err := r.unmount(); err == nil {
			t.Errorf("%s: called done", name)
		}
		// The last one is about what is left on disk: the device may go.
		if strings.Contains(strings.Join(r.calls(), "\n"), "unmap") && !strings.HasPrefix(name, "rbd.json") {
			t.Errorf("%s: %q", name, r.calls())
		}
		r.done()
	}
	// A device that is no number is not the kernel's, and config_info is not needed.
	r := newDetachRig(t)
	defer r.done()
	r.must(os.Mkdir(filepath.Join(sysRBDDevices, "x"), 0755))
	r.unreadable("config_info")
	r.mounter.MountPoints = nil
	r.must(r.unmount())
	r.gone("other entries")
}

// blocked makes the directory's parent a file.
func (r *detachRig) blocked() {
	parent := filepath.Dir(r.mountAt)
	r.must(os.RemoveAll(parent))
	r.must(ioutil.WriteFile(parent, nil, 0644))
}

type unlistedDetach struct{ *badMounter }

func (unlistedDetach) List() ([]mount.MountPoint, error) { return nil, fmt.Errorf("no /proc/mounts") }

// With the gate off the sysfs is upstream's to read, and an attach excludes nothing.
func TestDetachGateOff(t *testing.T) {
	defer gate(t, features.RBDRobustDetach, false)()
	r := newDetachRig(t)
	defer r.done()
	if _, _, decided := findImageDevice(testPool, "img"); decided {
		t.Error("the device is looked for")
	}
	if d, found := getDevFromImageAndPool(testPool, "img"); !found || d != r.device {
		t.Errorf("upstream's own look: %q, %v", d, found)
	}
	unlock := beginAttach(r.mountAt)
	beginAttach(r.mountAt)()
	unlock()
}

// Upstream's look is used where ours fails, and a missing device node is no device.
func TestFindImageDevice(t *testing.T) {
	r := newDetachRig(t)
	r.noSysfs()
	if _, _, decided := findImageDevice(testPool, "img"); decided {
		t.Error("decided without a list")
	}
	r.done()
	r = newDetachRig(t)
	defer r.done()
	r.must(os.Remove(r.device))
	if d, found, decided := findImageDevice(testPool, "img"); found || !decided {
		t.Errorf("a device without a node: %q, %v, %v", d, found, decided)
	}
}

// What is mounted is not known: the spec is upstream's, with neither pool nor image.
func TestReconstructUnknown(t *testing.T) {
	for name, set := range map[string]func(*detachRig){
		"mounts not known": func(r *detachRig) { r.host.mounter = unlistedDetach{r.mounter} },
		"pool not known":   func(r *detachRig) { r.unreadable("pool") },
	} {
		r := newDetachRig(t)
		set(r)
		spec, err := r.plugin.ConstructVolumeSpec("v", r.mountAt)
		if err != nil || spec.Volume.RBD.RBDPool != "" || spec.Volume.RBD.RBDImage != "" {
			t.Errorf("%s: %+v, %v", name, spec, err)
		}
		r.done()
	}
}

// A look for leftovers that cannot see is no reason to touch anything.
func TestCleanUpCannotLook(t *testing.T) {
	defer gate(t, features.RBDDetachLeftovers, true)()
	for name, set := range map[string]func(*detachRig){
		"no folder":        func(r *detachRig) { r.must(os.RemoveAll(filepath.Dir(r.mountAt))) },
		"no such folder":   func(r *detachRig) { r.blocked() },
		"mounts not known": func(r *detachRig) { r.host.mounter = unlistedDetach{r.mounter} },
	} {
		r := newDetachRig(t)
		set(r)
		r.plugin.cleanUp()
		if len(r.calls()) > 0 || len(r.devices()) != 1 {
			t.Errorf("%s: ran %q, devices %v", name, r.calls(), r.devices())
		}
		if e := r.host.events(); strings.Contains(e, "RBDLeftoverKept") != (name == "mounts not known") {
			t.Errorf("%s: events %q", name, e)
		}
		r.done()
	}
}
