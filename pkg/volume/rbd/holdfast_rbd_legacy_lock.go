// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"encoding/json"
	"fmt"
	"io/ioutil"
	"os"
	"path"
	"strings"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var (
	rbdLegacyLockTaken = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_legacy_lock_taken_total",
		Help: "Locks taken as kubelets up to 1.8 take them.",
	})
	rbdLegacyLockWouldTake = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_legacy_lock_would_take_total",
		Help: "Images mapped for writing without a lock, with the feature gate RBDLegacyLock off.",
	})
)

func init() {
	prometheus.MustRegister(rbdLegacyLockTaken, rbdLegacyLockWouldTake)
	keepsOwnLock = legacyLock
	hasItsLock = hasLegacyLock
}

func legacyLock() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RBDLegacyLock)
}

// legacyFile is rbd.json with the fields of 1.7, in its order. Kubelets up to 1.8 find there
// what to release their lock with, and so does DetachDisk, whatever the gate.
type legacyFile struct {
	Pool, Image string
	ReadOnly    bool
	Mon         []string
	Id          string
	Keyring     string
	Secret      string
}

const legacyFileName = "rbd.json"

// takeLegacyLock takes the lock of kubelets up to 1.8 on an image that is to be mapped for
// writing and that nobody watches, and writes rbd.json below where it will be mounted. What
// is returned undoes that after a map that failed; a lock that was there before stays.
func (util *RBDUtil) takeLegacyLock(b *rbdMounter, dir string) (func(), error) {
	nothing := func() {}
	if b.ReadOnly {
		return nothing, nil
	}
	if !legacyLock() {
		rbdLegacyLockWouldTake.Inc()
		return nothing, nil
	}
	exclusive, err := b.hasExclusiveLock()
	if err != nil {
		return nil, err
	}
	if exclusive {
		// A lock makes our own map fail; Ceph refuses a kubelet up to 1.8 here as long as
		// the image is open for writing. It may have left its lock here.
		return nothing, b.clearOwnLock()
	}
	own, err := b.clearForLegacyLock()
	if err != nil {
		return nil, err
	}
	// The file first: a lock without it would outlive the volume.
	file := path.Join(dir, legacyFileName)
	if err := b.writeLegacyFile(dir, file); err != nil {
		return nil, err
	}
	if own {
		return nothing, nil
	}
	if output, err := b.run([]string{"lock", "add", b.Image, ownLockID()}); err != nil {
		os.Remove(file)
		return nil, fmt.Errorf("rbd: failed to take the lock %s on %s: %v, rbd output: %s", ownLockID(), b.shownImage(), err, shownOutput(output))
	}
	rbdLegacyLockTaken.Inc()
	return func() {
		os.Remove(file)
		own, err := b.ownLock()
		if err == nil && own != nil {
			err = b.removeLock(*own)
		}
		if err != nil {
			glog.Warningf("rbd: the lock %s stays after a map that failed: %v", ownLockID(), err)
		}
	}, nil
}

// hasLegacyLock says whether an image that is mapped has what takeLegacyLock takes and writes,
// or needs none. A stock kubelet's mapping, for one, has not.
func hasLegacyLock(b *rbdMounter) (bool, error) {
	if !legacyLock() {
		return true, nil
	}
	_, err := os.Stat(path.Join((&RBDUtil{}).MakeGlobalPDName(*b.rbd), legacyFileName))
	if err != nil && !os.IsNotExist(err) {
		return false, err
	}
	if err == nil {
		if own, err := b.ownLock(); err != nil || own != nil {
			return own != nil, err
		}
	}
	return b.hasExclusiveLock()
}

func (b *rbdMounter) hasExclusiveLock() (bool, error) {
	return b.hasFeature("exclusive-lock")
}

// clearForLegacyLock says whether this machine has the lock already. Another machine's is
// removed if nobody watches the image; a lock that no kubelet took refuses the mount.
func (b *rbdMounter) clearForLegacyLock() (bool, error) {
	locks, err := b.listLocks()
	if err != nil {
		return false, err
	}
	own, settled := false, false
	for _, l := range locks {
		if l.id == ownLockID() {
			own = true
			continue
		}
		if !strings.HasPrefix(l.id, kubeLockMagic) {
			return false, fmt.Errorf("rbd: image %s has the lock %v, which no kubelet took", b.shownImage(), l)
		}
		// A kubelet up to 1.8 takes its lock first and maps then.
		if !settled {
			sleep(settleDelay)
			settled = true
		}
		watchers, err := b.listWatchers()
		if err != nil {
			return false, err
		}
		if len(watchers) > 0 {
			return false, fmt.Errorf("rbd: image %s has the lock %v and is in use: %s", b.shownImage(), l, shownText(fmt.Sprint(watchers)))
		}
		if err := b.removeLock(l); err != nil {
			return false, err
		}
	}
	return own, nil
}

// clearOwnLock removes this machine's lock from an image that nobody watches.
func (b *rbdMounter) clearOwnLock() error {
	own, err := b.ownLock()
	if err != nil || own == nil {
		return err
	}
	if watchers, err := b.listWatchers(); err != nil || len(watchers) > 0 {
		return err
	}
	return b.removeLock(*own)
}

// writeLegacyFile writes rbd.json, readable for root only as the key is in it, before
// anything is mounted over it.
func (b *rbdMounter) writeLegacyFile(dir, file string) error {
	notMounted, err := b.mounter.IsLikelyNotMountPoint(dir)
	if err != nil {
		return err
	}
	if !notMounted {
		return fmt.Errorf("rbd: something is mounted at %s", dir)
	}
	text, err := json.Marshal(legacyFile{b.Pool, b.Image, b.ReadOnly, b.Mon, b.Id, b.Keyring, b.Secret})
	if err != nil {
		return err
	}
	// A file that was there may be 1.7's, with mode 0644.
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return ioutil.WriteFile(file, append(text, '\n'), 0600)
}
