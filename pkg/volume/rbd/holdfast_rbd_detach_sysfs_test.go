// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// The device is told by whole names; what a kubelet never maps is not its own, and of two
// none is chosen.
func TestMappedAt(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	dir := "/x/rbd/rbd-image-img"
	if d, err := mappedAt(dir); d != "" || err != nil {
		t.Errorf("nothing is mapped: %q, %v", d, err)
	}
	f.device(0, "rbd", "img2", "-", "", "")
	f.device(1, "rbd2", "img", "-", "", "")
	f.device(2, "rbd", "img", "snap", "", "")
	f.device(3, "rbd", "img", "-", "space", "")
	if d, err := mappedAt(dir); d != "" || err != nil {
		t.Errorf("others are mapped: %q, %v", d, err)
	}
	if d, found := getDevFromImageAndPool("rbd", "img"); found {
		t.Errorf("%s is taken for the image", d)
	}
	want := f.device(4, "rbd", "img", "-", "", "")
	if d, err := mappedAt(dir); d != want || err != nil {
		t.Errorf("mapped: %q, %v", d, err)
	}
	if d, found := getDevFromImageAndPool("rbd", "img"); !found || d != want {
		t.Errorf("%q is the image's device, want %s", d, want)
	}
	f.device(5, "rbd", "img", "-", "", "")
	if _, err := mappedAt(dir); err == nil {
		t.Error("one of two is chosen")
	} else {
		contains(t, "error", err.Error(), devRBD+"4", devRBD+"5")
	}
	os.RemoveAll(sysRBDDevices)
	if d, err := mappedAt(dir); d != "" || err != nil {
		t.Errorf("no module: %q, %v", d, err)
	}
}

// The volume of a mount has the controller's name again, and its directory.
func TestReconstruct(t *testing.T) {
	const pod = "/pods/uid/volumes/kubernetes.io~rbd/vol"
	for name, c := range map[string]struct {
		on           bool
		config, want string
	}{
		"one monitor":  {true, testConfig, "[10.0.0.1:6789]:img"},
		"three":        {true, "10.0.0.1:6789,10.0.0.2:6789,[2001:db8::1]:6789 name=admin rbd img -", "[10.0.0.1:6789 10.0.0.2:6789 [2001:db8::1]:6789]:img"},
		"host names":   {true, "mon1:6789,mon2:6789 name=admin rbd img -", "[]:img"},
		"no config":    {true, "", "[]:img"},
		"gate off":     {false, testConfig, "[]:"},
		"not mounted":  {true, "-", "[]:"},
		"not in sysfs": {true, "x", "[]:"},
	} {
		restore := gate(t, features.RBDRobustDetach, c.on)
		r := newDetachRig(t)
		device := r.fakeRBD.device(3, "pool2", "img", "-", "", c.config)
		if name == "not in sysfs" {
			r.must(os.RemoveAll(filepath.Join(sysRBDDevices, "3")))
		}
		if name != "not mounted" {
			r.mounter.MountPoints = append(r.mounter.MountPoints, mount.MountPoint{Device: device, Path: pod})
		}
		spec, err := r.plugin.ConstructVolumeSpec("vol", pod)
		r.must(err)
		got, err := r.plugin.GetVolumeName(spec)
		r.must(err)
		if got != c.want || spec.Name() != "vol" {
			t.Errorf("%s: %q is %s", name, spec.Name(), got)
		}
		if c.want != "[]:" && spec.Volume.RBD.RBDPool != "pool2" {
			t.Errorf("%s: pool %q", name, spec.Volume.RBD.RBDPool)
		}
		r.done()
		restore()
	}
}
