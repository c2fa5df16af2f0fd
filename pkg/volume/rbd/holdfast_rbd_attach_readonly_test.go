// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
	utilexec "k8s.io/utils/exec"
)

// A read-only mount stands beside others on a device that nobody here can write to.
func TestAttachReadOnly(t *testing.T) {
	for name, c := range map[string]struct {
		on       bool
		watchers []rbdWatcher
		want     string
		readOnly bool
		fails    bool
	}{
		"others":           {true, []rbdWatcher{foreignWatcher}, "rbd status img; rbd info img --format json; rbd map img; rbd status img; rbd info img --format json; blockdev --setro /dev/rbd1", true, false},
		"nobody":           {true, nil, "rbd status img; rbd lock list img; rbd map img; rbd status img", false, false},
		"gate off, others": {false, []rbdWatcher{foreignWatcher}, "rbd status img", false, true},
		"gate off, nobody": {false, nil, "rbd status img; rbd map img", false, false},
	} {
		r := newAttachRig(t, c.on)
		r.watchers = c.watchers
		if _, err := r.attach(true); (err != nil) != c.fails || r.commands() != c.want || r.readOnly != c.readOnly {
			t.Errorf("%s: %v, read-only %v: %s", name, err, r.readOnly, r.commands())
		}
		r.end()
	}
	// What cannot be protected, or is not known, is not handed out and not left mapped.
	for _, fails := range []string{"blockdev --setro", "blockdev --getro", "rbd info"} {
		r := newAttachRig(t, true)
		r.watchers = []rbdWatcher{foreignWatcher}
		r.failing(fails, "no", exit(1))
		if _, err := r.attach(true); err == nil || len(r.devices()) > 0 {
			t.Errorf("%s fails: %v, %v", fails, err, r.devices())
		}
		r.end()
	}
	r := newAttachRig(t, true)
	r.before = func(line string) (string, error, bool) {
		if strings.HasPrefix(line, "rbd status") && len(r.devices()) > 0 {
			return "no", exit(1), true
		}
		return r.blockdev(line)
	}
	if _, err := r.attach(true); err == nil || len(r.devices()) > 0 {
		t.Errorf("second status fails: %v, %v", err, r.devices())
	}
	r.end()
}

// With object-map a reader would take the lock of the node that writes, which is refused as
// in stock, also where the other comes between the look and the map.
func TestAttachReadOnlyObjectMap(t *testing.T) {
	const features = `"layering","exclusive-lock","object-map"`
	r := newAttachRig(t, true)
	r.features, r.watchers = features, []rbdWatcher{foreignWatcher}
	_, err := r.attach(true)
	contains(t, "error", fmt.Sprint(err), "rbd image rbd/img is still being used", foreignWatcher.client, objectMapRefused)
	if len(r.slept) != 9 || strings.Contains(r.commands(), "map img;") || len(r.devices()) > 0 {
		t.Errorf("slept %v: %s", r.slept, r.commands())
	}
	r.end()

	r = newAttachRig(t, true)
	r.features = features
	if _, err := r.attach(true); err != nil || r.readOnly {
		t.Errorf("nobody else: %v, read-only %v", err, r.readOnly)
	}
	r.end()

	// Ceph knows this node by an address that it does not have.
	r = newAttachRig(t, true)
	r.features = features
	localAddresses = func() ([]net.Addr, error) { return nil, nil }
	if _, err := r.attach(true); err != nil || !r.readOnly {
		t.Errorf("nobody else, behind SNAT: %v, read-only %v: %s", err, r.readOnly, r.commands())
	}
	r.end()

	for name, watchers := range map[string][]rbdWatcher{
		"mapped just now":              nil,
		"found mapped":                 {ownWatcher, foreignWatcher},
		"found mapped, own watch lost": {foreignWatcher},
	} {
		r = newAttachRig(t, true)
		r.features = features
		if r.watchers = watchers; len(watchers) > 0 {
			r.device(4, testPool, "img", "-", "", "")
		}
		r.before = func(line string) (string, error, bool) {
			if strings.HasPrefix(line, "rbd map") {
				r.watchers = []rbdWatcher{foreignWatcher} // and this node's, after the map
			}
			return r.blockdev(line)
		}
		_, err := r.attach(true)
		contains(t, name, fmt.Sprint(err), "is in use by other clients", objectMapRefused)
		if len(r.devices()) > 0 || r.readOnly {
			t.Errorf("%s: left mapped: %v: %s", name, r.devices(), r.commands())
		}
		r.end()
	}
}

// A device that is found mapped is made what the mount needs, but not under another mount.
func TestAttachFoundDevice(t *testing.T) {
	for name, c := range map[string]struct {
		wantReadOnly, isReadOnly, mounted, others bool
		fails, unmapped, endsReadOnly             bool
	}{
		"rw wanted, rw":                  {false, false, false, false, false, false, false},
		"rw wanted, rw, others":          {false, false, false, true, true, true, false},
		"rw wanted, rw, others, mounted": {false, false, true, true, false, false, false},
		"rw wanted, ro":                  {false, true, false, false, true, true, true},
		"rw wanted, ro, mounted":         {false, true, true, false, false, false, true},
		"ro wanted, rw, alone":           {true, false, false, false, false, false, false},
		"ro wanted, rw, others":          {true, false, false, true, false, false, true},
		"ro wanted, ro, alone":           {true, true, false, false, false, false, false},
		"ro wanted, rw, others, mounted": {true, false, true, true, false, false, false},
	} {
		r := newAttachRig(t, true)
		r.readOnly = c.isReadOnly
		device := r.device(4, testPool, "img", "-", "", "")
		r.watchers = []rbdWatcher{{"10.0.0.11:0/9", "client.9"}}
		if c.others {
			r.watchers = append(r.watchers, foreignWatcher)
		}
		if c.mounted {
			r.mounter.MountPoints = []mount.MountPoint{{Device: device, Path: "/x"}}
		}
		got, err := r.attach(c.wantReadOnly)
		if (err != nil) != c.fails || err == nil && got != device || (len(r.devices()) == 0) != c.unmapped || r.readOnly != c.endsReadOnly {
			t.Errorf("%s: %q, %v, read-only %v, devices %v: %s", name, got, err, r.readOnly, r.devices(), r.commands())
		}
		r.end()
	}
	// One watcher that is not this node's: another's, whatever the address is.
	r := newAttachRig(t, true)
	defer r.end()
	r.device(4, testPool, "img", "-", "", "")
	r.watchers = []rbdWatcher{foreignWatcher}
	if _, err := r.attach(true); err != nil || !r.readOnly {
		t.Errorf("%v, read-only %v", err, r.readOnly)
	}
	if _, err := r.attach(false); err == nil || len(r.devices()) > 0 {
		t.Errorf("found, own watch lost, another node's there, and mounted for writing: %v, devices %v", err, r.devices())
	}
}

// pickyMounter is a mounter whose mounts without an option fail.
type pickyMounter struct {
	*mount.FakeMounter
	needs string
	tried []string
}

func (m *pickyMounter) Mount(source, target, fstype string, options []string) error {
	m.tried = append(m.tried, strings.Join(options, ","))
	for _, o := range options {
		if o == m.needs {
			return m.FakeMounter.Mount(source, target, fstype, options)
		}
	}
	return fmt.Errorf("cannot mount read-only")
}

// Neither fsck nor mkfs touches a device that others have open, and the journal is left out
// only where a mount needs that.
func TestMountReadOnly(t *testing.T) {
	for name, c := range map[string]struct {
		on, readOnly, protected bool
		fstype, format, needs   string
		tried                   string
		fsck, fails             bool
	}{
		"clean":                 {true, true, true, "ext4", "ext4", "ro", "ro", false, false},
		"dirty ext4":            {true, true, true, "ext4", "ext4", "noload", "ro ro,noload", false, false},
		"dirty ext4, no type":   {true, true, true, "", "ext4", "noload", "ro ro,noload", false, false},
		"dirty xfs":             {true, true, true, "xfs", "xfs", "norecovery", "ro ro,norecovery", false, false},
		"empty":                 {true, true, true, "ext4", "", "x", "ro ro,noload", false, true},
		"dirty, no udev":        {true, true, true, "ext4", "", "noload", "ro ro,noload", false, false},
		"dirty xfs, no udev":    {true, true, true, "xfs", "", "norecovery", "ro ro,norecovery", false, false},
		"no type, no udev":      {true, true, true, "", "", "noload", "ro", false, true},
		"another filesystem":    {true, true, true, "xfs", "ext4", "noload", "ro", false, true},
		"device that may write": {true, true, false, "ext4", "ext4", "ro", "ro", false, false},
		"mount that writes":     {true, false, true, "ext4", "ext4", "defaults", "defaults", true, false},
		"gate off":              {false, true, true, "ext4", "ext4", "ro", "ro", false, false},
	} {
		r := newAttachRig(t, c.on)
		r.readOnly = c.protected
		m := &pickyMounter{FakeMounter: &mount.FakeMounter{}, needs: c.needs}
		r.host.mounter = m
		blockdev := r.before
		r.before = func(line string) (string, error, bool) {
			if strings.HasPrefix(line, "lsblk") {
				return c.format + "\n", nil, true
			}
			return blockdev(line)
		}
		a, err := (&rbdPlugin{host: r.host}).NewAttacher()
		r.must(err)
		spec := volume.NewSpecFromVolume(&v1.Volume{VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{RBDImage: "img", RBDPool: testPool, FSType: c.fstype, ReadOnly: c.readOnly}}})
		err = a.MountDevice(spec, r.device(2, testPool, "img", "-", "", ""), makePDNameInternal(r.host, testPool, "img"))
		ran := strings.Join(r.calls(), "\n")
		if (err != nil) != c.fails || strings.Join(m.tried, " ") != c.tried || strings.Contains(ran, "fsck") != c.fsck || strings.Contains(ran, "mkfs") {
			t.Errorf("%s: %v, tried %q:\n%s", name, err, m.tried, ran)
		}
		r.end()
	}
	r := newAttachRig(t, true)
	defer r.end()
	for err, fails := range map[error]bool{exit(1): true, utilexec.ErrExecutableNotFound: false} {
		r.failing("blockdev", "", err)
		a, newErr := (&rbdPlugin{host: r.host}).newAttacherInternal(&RBDUtil{})
		r.must(newErr)
		if got := a.(*rbdAttacher).formatAndMount("/dev/rbd9", r.dir, "ext4", []string{"ro"}, true); (got != nil) != fails {
			t.Errorf("blockdev: %v: %v", err, got)
		}
	}
}
