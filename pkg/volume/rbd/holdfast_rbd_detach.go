// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"encoding/json"
	"fmt"
	"io/ioutil"
	"os"
	"path"
	dstrings "strings"
	"sync"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/keymutex"
	"k8s.io/kubernetes/pkg/util/mount"
	volutil "k8s.io/kubernetes/pkg/volume/util"
)

var (
	rbdDetachFound = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_detach_found_total",
		Help: "RBD devices that were unmapped although they were no longer mounted.",
	})
	rbdDetachWouldFind = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_detach_would_find_total",
		Help: "Detaches that failed as the device was no longer mounted, with the feature gate RBDRobustDetach off.",
	})
	rbdDetachLocksKept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_detach_locks_kept_total",
		Help: "Locks of kubelets up to 1.8 that could not be released when the volume was detached.",
	})
)

func init() {
	prometheus.MustRegister(rbdDetachFound, rbdDetachWouldFind, rbdDetachLocksKept)
}

func robustDetach() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RBDRobustDetach)
}

// oldRBDFile is what kubelets up to 1.8 write into the directory under the mount: the
// monitors, the user and the key, to release their lock with.
const oldRBDFile = "rbd.json"

var (
	// imageLocks let one operation at a time at an image, by the directory of its mount.
	// A volume that was reconstructed under another name than the controller's is
	// detached beside its attach otherwise.
	imageLocks = keymutex.NewKeyMutex()

	attachedMutex sync.Mutex
	// attachedHere counts, by the directories of images, the attaches that this process has
	// begun: such an image is no leftover.
	attachedHere = map[string]int{}
)

func lockImage(dir string) func() {
	imageLocks.LockKey(dir)
	return func() { imageLocks.UnlockKey(dir) }
}

// beginAttach excludes other operations at an image until the returned function is called.
func beginAttach(dir string) func() {
	if !robustDetach() {
		return func() {}
	}
	unlock := lockImage(dir)
	attachedMutex.Lock()
	attachedHere[dir]++
	attachedMutex.Unlock()
	return unlock
}

func timesAttached(dir string) int {
	attachedMutex.Lock()
	defer attachedMutex.Unlock()
	return attachedHere[dir]
}

// beginMount excludes other operations at an image while its device is mounted.
func (attacher *rbdAttacher) beginMount(device, dir string) (func(), error) {
	if !robustDetach() {
		return func() {}, nil
	}
	unlock := lockImage(dir)
	if err := checkMappedDevice(device, dir); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// bindMount binds an image's mount to a pod's directory, and excludes other operations at the
// image meanwhile. What is at dir without the mount is a directory of the node's own disk, and
// the pod would write there.
func bindMount(mounter mount.Interface, dir, target string, options []string) error {
	if robustDetach() {
		defer lockImage(dir)()
		if notMounted, err := mounter.IsLikelyNotMountPoint(dir); err != nil {
			return err
		} else if notMounted {
			return fmt.Errorf("no device is mounted at %s", dir)
		}
	}
	return mounter.Mount(dir, target, "", options)
}

// afterFailedMount unmaps what was mapped for a mount that failed. The next try maps it
// again; without one nothing would ever unmap it, as the volume never was mounted.
func (attacher *rbdAttacher) afterFailedMount(device, dir string) {
	if robustDetach() {
		unmapUnused(attacher.manager, attacher.plugin, dir, device)
	}
}

// unmountDevice is UnmountDevice in a form that can be repeated after every failure.
func (detacher *rbdDetacher) unmountDevice(dir string) error {
	defer lockImage(dir)()
	return detacher.unmountLocked(dir)
}

// unmountLocked does that for a caller that has excluded other operations at the image.
func (detacher *rbdDetacher) unmountLocked(dir string) error {
	exists, err := volutil.PathExists(dir)
	if err != nil {
		return fmt.Errorf("Error checking if path exists: %v", err)
	}
	device := ""
	if exists {
		var count int
		if device, count, err = mount.GetDeviceNameFromMount(detacher.mounter, dir); err != nil {
			return err
		}
		if device != "" && count > 1 {
			return fmt.Errorf("rbd: more than 1 reference counts at %s", dir)
		}
		if device != "" {
			if err := checkDevice(device, dir); err != nil {
				return err
			}
			if err := detacher.mounter.Unmount(dir); err != nil {
				return err
			}
			glog.V(3).Infof("rbd: successfully umount device mountpath %s", dir)
		}
	} else if left, err := mappedAt(dir); err != nil || left == "" {
		return err
	}
	if err := detacher.manager.DetachDisk(detacher.plugin, dir, device); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return err
	}
	glog.V(3).Infof("rbd: successfully detach %s and remove %s", device, dir)
	return nil
}

// detachDisk unmaps a device and releases what a kubelet up to 1.8 took for it. Without a
// device the one is looked for that belongs at dir; there may be none.
func (util *RBDUtil) detachDisk(plugin *rbdPlugin, dir, device string) error {
	if device == "" {
		var err error
		if device, err = mappedAt(dir); err != nil {
			return err
		}
		if device != "" {
			glog.Warningf("rbd: %s is still mapped though not mounted at %s, unmapping it", device, dir)
			rbdDetachFound.Inc()
		}
	}
	if device != "" {
		if err := util.unmap(plugin, device); err != nil {
			return err
		}
		glog.V(3).Infof("rbd: successfully unmap device %s", device)
	}
	return util.releaseOldFile(plugin, dir)
}

// unmap runs rbd unmap, which refuses a device that is mounted or open (exit status 16).
func (util *RBDUtil) unmap(plugin *rbdPlugin, device string) error {
	output, err := newRBDExec(plugin.host).Run("rbd", "unmap", device)
	if err == nil {
		return nil
	}
	if n := dstrings.TrimPrefix(device, devRBD); exitStatus(err) == 22 && deviceNumberRE.MatchString(n) {
		if _, statErr := os.Stat(path.Join(sysRBDDevices, n)); os.IsNotExist(statErr) {
			glog.Warningf("rbd: device %s has gone meanwhile", device)
			return nil
		}
	}
	return rbdErrors(err, fmt.Errorf("rbd: failed to unmap device %s, error %v, rbd output: %s", device, err, shownOutput(output)))
}

// releaseOldFile releases the lock that rbd.json in dir tells of, and removes the file. It
// goes also if the lock does not: it holds the key, and with it the directory could never be
// removed. A lock without a watcher is cleared when the image is attached next.
func (util *RBDUtil) releaseOldFile(plugin *rbdPlugin, dir string) error {
	file := path.Join(dir, oldRBDFile)
	text, err := ioutil.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = util.releaseOwnLock(plugin, text)
	}
	if err != nil {
		message := fmt.Sprintf("The lock %s that %s tells of stays: %v", ownLockID(), file, err)
		glog.Warning(message)
		nodeEvent(plugin.host, v1.EventTypeWarning, "RBDLockKept", message)
		rbdDetachLocksKept.Inc()
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// releaseOwnLock removes this machine's lock from the image that rbd.json tells of, if it
// is there. The device is unmapped, so that nothing here needs the lock.
func (util *RBDUtil) releaseOwnLock(plugin *rbdPlugin, text []byte) error {
	b := &rbdMounter{rbd: newRBD("", "", "", "", false, plugin, util)}
	if err := json.Unmarshal(text, b); err != nil {
		return fmt.Errorf("it cannot be read")
	}
	if b.Image == "" || len(b.Mon) == 0 {
		return fmt.Errorf("it names no image or no monitors")
	}
	own, err := b.ownLock()
	if err != nil || own == nil {
		return err
	}
	return b.removeLock(*own)
}
