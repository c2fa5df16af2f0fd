// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// Only what nothing else has mounted, and what this process has not begun to attach, is
// detached.
func TestCleanUp(t *testing.T) {
	defer gate(t, features.RBDDetachLeftovers, true)()
	for name, c := range map[string]struct {
		set      func(*detachRig)
		detached bool
		event    string
	}{
		"mounted at its directory only": {func(*detachRig) {}, true, "RBDLeftoverDetached"},
		"mounted for a pod":             {func(r *detachRig) { r.addMount(r.device, "/pods/x") }, false, ""},
		"mounted for a pod, no longer at its directory": {func(r *detachRig) {
			r.mounter.MountPoints = nil
			r.addMount(r.device, "/pods/x")
		}, false, ""},
		"the root directory is a link": {func(r *detachRig) {
			dir := filepath.Dir(r.mountAt)
			r.must(os.Rename(dir, dir+"-real"))
			r.must(os.Symlink(dir+"-real", dir))
			r.mounter.MountPoints[0].Path = filepath.Join(dir+"-real", filepath.Base(r.mountAt))
		}, true, "RBDLeftoverDetached"},
		"mapped, not mounted": {func(r *detachRig) { r.mounter.MountPoints = nil }, true, "RBDLeftoverDetached"},
		"left by 1.7 whose unmap failed": {func(r *detachRig) {
			r.mounter.MountPoints = nil
			r.oldFile()
		}, true, "RBDLeftoverDetached"},
		"busy": {func(r *detachRig) {
			r.before = func(line string) (string, error, bool) {
				return busyText, exit(16), strings.HasPrefix(line, "rbd unmap")
			}
		}, false, "RBDLeftoverKept"},
		"being attached":                 {func(r *detachRig) { beginAttach(r.mountAt)() }, false, ""},
		"something else is mounted":      {func(r *detachRig) { r.mounter.MountPoints[0].Device = "/dev/sdb" }, false, ""},
		"mapped twice":                   {func(r *detachRig) { r.fakeRBD.device(1, testPool, "img", "-", "", "") }, false, "RBDLeftoverKept"},
		"another image at the directory": {func(r *detachRig) { r.fakeRBD.device(0, testPool, "another", "-", "", "") }, false, ""},
	} {
		r := newDetachRig(t)
		c.set(r)
		r.plugin.cleanUp()
		_, err := os.Stat(r.mountAt)
		if os.IsNotExist(err) != c.detached || (len(r.devices()) == 0) != c.detached {
			t.Errorf("%s: directory %v, devices %v", name, err, r.devices())
		}
		if c.detached && len(r.locks) > 0 {
			t.Errorf("%s: locks %v", name, r.locks)
		}
		if e := r.host.events(); (c.event == "") != (e == "") || !strings.Contains(e, c.event) {
			t.Errorf("%s: events %q", name, e)
		}
		r.done()
	}
}

func (r *detachRig) addMount(device, path string) {
	r.mounter.MountPoints = append(r.mounter.MountPoints, mount.MountPoint{Device: device, Path: path})
}

// By default an image that is mapped, perhaps by hand, stays and is reported; one that is
// mounted for a pod and a directory without an image are no news.
func TestCleanUpReports(t *testing.T) {
	for name, c := range map[string]struct {
		set      func(*detachRig)
		reported bool
	}{
		"mounted at its directory only": {func(*detachRig) {}, true},
		"mapped, not mounted":           {func(r *detachRig) { r.mounter.MountPoints = nil }, true},
		"mounted for a pod":             {func(r *detachRig) { r.addMount(r.device, "/pods/x") }, false},
		"another image at the directory": {func(r *detachRig) {
			r.mounter.MountPoints = nil
			r.fakeRBD.device(0, testPool, "another", "-", "", "")
		}, false},
	} {
		r := newDetachRig(t)
		c.set(r)
		mounts := len(r.mounter.MountPoints)
		r.plugin.cleanUp()
		if _, err := os.Stat(r.mountAt); err != nil || len(r.devices()) != 1 || len(r.mounter.MountPoints) != mounts {
			t.Errorf("%s: directory %v, devices %v, mounts %v", name, err, r.devices(), r.mounter.MountPoints)
		}
		if e := r.host.events(); strings.Contains(e, "RBDLeftoverKept") != c.reported || strings.Contains(e, "RBDDetachLeftovers is off") != c.reported {
			t.Errorf("%s: events %q", name, e)
		}
		r.done()
	}
}

// A file that somebody wrote into the directory is not removed.
func TestCleanUpKeepsFiles(t *testing.T) {
	defer gate(t, features.RBDDetachLeftovers, true)()
	r := newDetachRig(t)
	defer r.done()
	file := filepath.Join(r.mountAt, "data")
	r.must(ioutil.WriteFile(file, nil, 0644))
	r.plugin.cleanUp()
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	contains(t, "events", r.host.events(), "RBDLeftoverKept")
}

// A kubelet looks once, by itself; the controller manager and a kubelet with the gate off
// do not.
func TestCleanUpStarts(t *testing.T) {
	defer gate(t, features.RBDDetachLeftovers, true)()
	defer func(was time.Duration) { cleanUpDelay = was }(cleanUpDelay)
	cleanUpDelay = time.Millisecond
	for name, c := range map[string]struct {
		node string
		on   bool
		want bool
	}{"kubelet": {testNode, true, true}, "controller manager": {"", true, false}, "gate off": {testNode, false, false}} {
		restore := gate(t, features.RBDRobustDetach, c.on)
		r := newDetachRig(t)
		r.host.node = c.node
		r.must((&rbdPlugin{}).Init(r.host))
		gone := false
		for end := time.Now().Add(map[bool]time.Duration{true: 10 * time.Second, false: 50 * time.Millisecond}[c.want]); time.Now().Before(end) && !gone; time.Sleep(time.Millisecond) {
			_, err := os.Stat(r.mountAt)
			gone = os.IsNotExist(err)
		}
		if gone != c.want {
			t.Errorf("%s: detached %v", name, gone)
		}
		r.done()
		restore()
	}
}
