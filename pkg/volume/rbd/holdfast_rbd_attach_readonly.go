// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"strings"

	"github.com/golang/glog"
	utilexec "k8s.io/utils/exec"
)

// hasItsLock says whether a mapped image has the lock that it is to be mapped with, if any.
var hasItsLock = func(*rbdMounter) (bool, error) { return true, nil }

// prepareDevice makes a mapped device what the mount needs, and returns it. A read-only
// mount of an image that others have open gets a device that the kernel lets nobody write
// to; the mapping itself stays an ordinary one, as a read-only one is watched for by nobody. A
// device that such a mount left is mapped anew for one that writes.
//
// found: the device was mapped before this attach, so that nobody has looked who else uses the
// image. What left it may have been a read-only mount beside another node's. A device that was
// mapped just now is looked at as well: who came after the look before the map is seen here.
func (util *RBDUtil) prepareDevice(b *rbdMounter, device string, found bool) (string, error) {
	toCheck := found && !b.ReadOnly
	if !attachChecks() && !(toCheck && keepsOwnLock()) {
		return device, nil
	}
	mounted, err := b.isMounted(device)
	if mounted {
		return device, nil // another pod of this node has it, and the mount is shared
	}
	if err == nil && toCheck {
		err = b.checkFound(device)
	} else if err == nil && !b.ReadOnly {
		err = b.checkMapped()
	}
	if err == nil && attachChecks() {
		err = b.setDevice(device, found)
	}
	if err == nil {
		return device, nil
	}
	// Nothing has it mounted, or the kernel refuses. That is so too if a question to Ceph failed,
	// and what a device can be used for is not known. The next try looks and maps anew, and
	// takes anew what RBDLegacyLock takes.
	unmapUnused(util, b.plugin, util.MakeGlobalPDName(*b.rbd), device)
	return "", err
}

// checkMapped refuses an image that was mapped for writing just now, when nobody watched it, if it
// has another watcher by now: a node that looked at the same moment, or a kubelet up to 1.8
// whose map took long. Two that both look give way both, and the kubelet tries again.
func (b *rbdMounter) checkMapped() error {
	watchers, err := b.listWatchers()
	if err == nil && len(watchers) > 1 {
		err = fmt.Errorf("rbd: image %s was opened by another client while it was mapped: %s", b.shownImage(), watchersText(watchers))
	}
	return err
}

// checkFound refuses a device that was found mapped, and is to be mounted for writing, if it
// was mapped without the lock that it needs or other nodes have the image open as well.
func (b *rbdMounter) checkFound(device string) error {
	if has, err := hasItsLock(b); err != nil {
		return err
	} else if !has {
		return fmt.Errorf("rbd: device %s of image %s was found mapped, it is locked and mapped anew", device, b.shownImage())
	}
	if !attachChecks() {
		return nil
	}
	watchers, err := b.listWatchers()
	if err == nil && isSharedBy(watchers) {
		err = fmt.Errorf("rbd: device %s of image %s was found mapped, and the image is in use: %s", device, b.shownImage(), watchersText(watchers))
	}
	return err
}

// setDevice has the kernel let nobody write to the device of a read-only mount that others use.
func (b *rbdMounter) setDevice(device string, found bool) error {
	readOnly, err := b.deviceIsReadOnly(device)
	if err != nil {
		return err
	}
	if !b.ReadOnly {
		if readOnly {
			return fmt.Errorf("rbd: device %s of image %s was mapped for a read-only mount, it is mapped anew", device, b.shownImage())
		}
		return nil
	}
	watchers, err := b.listWatchers()
	if err != nil {
		return err
	}
	shared := isSharedBy(watchers)
	// After a map the only watcher is this node, whatever address Ceph knows it by.
	if shared && (found || len(watchers) > 1) {
		if locks, err := b.readsTakeLock(); err != nil {
			return err
		} else if locks {
			return fmt.Errorf("rbd: image %s is in use by other clients; %s", b.shownImage(), objectMapRefused)
		}
	}
	if shared == readOnly {
		return nil
	}
	option := "--setrw"
	if shared {
		option = "--setro"
	}
	if output, err := b.exec.Run("blockdev", option, device); err != nil {
		return fmt.Errorf("rbd: blockdev %s %s failed: %v, output: %s", option, device, err, shownOutput(output))
	}
	return nil
}

// isSharedBy says whether an image that is mapped here has watchers beside this node's. Its own
// watch may be lost, and the only one another's.
func isSharedBy(watchers []rbdWatcher) bool {
	return len(watchers) > 1 || len(watchers) == 1 && !isLocal(watchers[0])
}

func (b *rbdMounter) isMounted(device string) (bool, error) {
	mps, err := b.mounter.List()
	if err != nil {
		return false, err
	}
	for _, mp := range mps {
		if mp.Device == device {
			return true, nil
		}
	}
	return false, nil
}

// deviceIsReadOnly asks the kernel. Where there is no blockdev nothing was made read-only.
func (b *rbdMounter) deviceIsReadOnly(device string) (bool, error) {
	output, err := b.exec.Run("blockdev", "--getro", device)
	if err == utilexec.ErrExecutableNotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("rbd: blockdev --getro %s failed: %v, output: %s", device, err, shownOutput(output))
	}
	return strings.TrimSpace(string(output)) == "1", nil
}

// formatAndMount is FormatAndMount, but for a read-only mount of a device that was made
// read-only: its journal cannot be replayed, and must not be, as another node has the
// filesystem mounted. So it is mounted without, if the kernel wants to replay it. Neither
// fsck nor mkfs runs for a read-only mount, here as in stock.
func (attacher *rbdAttacher) formatAndMount(device, dir, fstype string, options []string, readOnly bool) error {
	b := &rbdMounter{rbd: newRBD("", "", "", "", readOnly, attacher.plugin, attacher.manager)}
	protected := false
	if attachChecks() && readOnly {
		var err error
		if protected, err = b.deviceIsReadOnly(device); err != nil {
			return err
		}
	}
	if !protected {
		return attacher.mounter.FormatAndMount(device, dir, fstype, options)
	}
	err := attacher.mounter.Mount(device, dir, fstype, options)
	if err == nil {
		return nil
	}
	format, formatErr := attacher.mounter.GetDiskFormat(device)
	if formatErr != nil || format == "" {
		// lsblk knows what udev has told it, which may come later, or never. mount refuses a
		// filesystem that is not the volume's.
		format = fstype
	}
	without, known := map[string]string{"ext3": "noload", "ext4": "noload", "xfs": "norecovery"}[format]
	if !known || fstype != "" && fstype != format {
		return err
	}
	glog.V(3).Infof("rbd: mounting %s with %s, its journal is in use: %v", device, without, err)
	return attacher.mounter.Mount(device, dir, fstype, append(append([]string{}, options...), without))
}
