// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kevents "k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/volume"
)

var (
	rbdAttachLooks = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_attach_waits_total",
		Help: "Looks at the watchers of an image after the first, as it was in use.",
	})
	rbdAttachWouldWait = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_attach_would_wait_total",
		Help: "Attaches refused after one look at the watchers, with the feature gate RBDAttachChecks off.",
	})
	rbdAttachLocks = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_attach_locks_removed_total",
		Help: "Locks of kubelets up to 1.8 that were removed from an image without watchers.",
	})
)

func init() {
	prometheus.MustRegister(rbdAttachLooks, rbdAttachWouldWait, rbdAttachLocks)
}

func attachChecks() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RBDAttachChecks)
}

const (
	// The looks at an image's watchers of Kubernetes 1.10: the sleeps between them add up to
	// 49 s, a dead client's watcher goes after 30 s.
	watcherLooks      = 10
	watcherFirstDelay = time.Second
	watcherFactor     = 1.4

	// settleDelay is waited between finding a lock without a watcher and looking again. A
	// kubelet up to 1.8 takes its lock first and maps then, which takes a client that meets a
	// dead monitor some seconds: it tries the next one after 3 s.
	settleDelay = 10 * time.Second
)

var sleep = time.Sleep

// imageInUse is rbdStatus for an attach: it looks several times, lets a read-only mount
// stand beside others, and clears locks of kubelets up to 1.8 off an image that nobody watches.
// It returns whether the image is in use and by whom.
func (util *RBDUtil) imageInUse(b *rbdMounter) (bool, string, error) {
	if !attachChecks() {
		found, output, err := util.rbdStatus(b)
		if found {
			rbdAttachWouldWait.Inc()
		}
		return found, output, err
	}
	delay := watcherFirstDelay
	for look := 1; ; look++ {
		watchers, err := b.listWatchers()
		if err != nil {
			return false, "", err
		}
		if len(watchers) == 0 {
			if watchers, err = b.clearOldLocks(); err != nil {
				return false, "", err
			}
		}
		if len(watchers) == 0 {
			return false, "", nil
		}
		why := ""
		if b.ReadOnly {
			locks, err := b.readsTakeLock()
			if err != nil {
				return false, "", err
			}
			if !locks {
				return false, "", nil
			}
			why = "; " + objectMapRefused
		}
		if look == watcherLooks {
			return true, watchersText(watchers) + why, nil
		}
		glog.V(3).Infof("rbd: image %s is in use, looking again in %v: %s", b.shownImage(), delay, watchersText(watchers))
		rbdAttachLooks.Inc()
		sleep(delay)
		delay = time.Duration(float64(delay) * watcherFactor)
	}
}

// objectMapRefused is said where only the feature keeps a read-only mount away.
const objectMapRefused = "a read-only mount beside others needs an image without the feature object-map"

// readsTakeLock says whether a client that only reads the image takes its exclusive lock
// from the one that writes. With object-map the kernel does (need_exclusive_lock in
// drivers/block/rbd.c), unless the image is mapped read-only, when it watches nothing. If the
// holder of the lock does not answer, it is blocklisted, with all its other images.
func (b *rbdMounter) readsTakeLock() (bool, error) {
	return b.hasFeature("object-map")
}

func (b *rbdMounter) hasFeature(feature string) (bool, error) {
	output, err := b.run([]string{"info", b.Image, "--format", "json"})
	if err != nil {
		return false, fmt.Errorf("rbd: failed to ask for the features of %s: %v, rbd output: %s", b.shownImage(), err, shownOutput(output))
	}
	image, err := parseInfo(output)
	if err != nil {
		return false, err
	}
	for _, f := range image.features {
		if f == feature {
			return true, nil
		}
	}
	return false, nil
}

// maxOldLocks is how many locks clearOldLocks looks at: a server that a pod names can list any
// number of them, each of which costs commands and an event.
const maxOldLocks = 100

// clearOldLocks removes the locks of kubelets up to 1.8 from an image without watchers: their
// holders have it mapped no longer. What cannot be listed or removed stays, as an attach of
// 1.9 does not need it gone; with exclusive-lock the map fails then, and says why. Before
// each removal the watchers are looked at again; those that have come are returned.
func (b *rbdMounter) clearOldLocks() ([]rbdWatcher, error) {
	locks, err := b.listLocks()
	if err != nil {
		glog.Warning(err)
		return nil, nil
	}
	if len(locks) > maxOldLocks {
		locks = locks[:maxOldLocks]
	}
	settled := false
	for _, l := range locks {
		if !strings.HasPrefix(l.id, kubeLockMagic) || l.id == ownLockID() && keepsOwnLock() && !b.ReadOnly {
			continue
		}
		if !settled {
			sleep(settleDelay)
			settled = true
		}
		if watchers, err := b.listWatchers(); err != nil || len(watchers) > 0 {
			return watchers, err
		}
		if err := b.removeLock(l); err != nil {
			glog.Warning(err)
			nodeEvent(b.plugin.host, v1.EventTypeWarning, "RBDLockKept", err.Error())
			continue
		}
		rbdAttachLocks.Inc()
		message := fmt.Sprintf("Removed the lock %s of %s (%s) from the image %s, which nobody watches", shownName(l.id), shownName(l.locker), shownName(l.address), b.shownImage())
		glog.Info(message)
		nodeEvent(b.plugin.host, v1.EventTypeNormal, "RBDLockRemoved", message)
	}
	return nil, nil
}

// localAddresses are this machine's. Tests have others.
var localAddresses = net.InterfaceAddrs

// isLocal says whether a watcher's address, "10.0.0.1:0/710245699", is one of this machine.
func isLocal(w rbdWatcher) bool {
	address := w.address
	if at := strings.IndexByte(address, '/'); at >= 0 {
		address = address[:at]
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	addrs, err := localAddresses()
	if err != nil || ip == nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}

func watchersText(watchers []rbdWatcher) string {
	var texts []string
	for _, w := range watchers {
		text := w.String()
		if isLocal(w) {
			text += " (this node's own)"
		}
		texts = append(texts, text)
	}
	return shownText(strings.Join(texts, ", "))
}

// attachFailed records what AttachDisk failed with for the pod. The kubelet records no
// event for it.
func (attacher *rbdAttacher) attachFailed(spec *volume.Spec, pod *v1.Pod, err error) {
	if attachChecks() {
		recordEvent(attacher.plugin.host, pod, v1.EventTypeWarning, kevents.FailedMountVolume,
			fmt.Sprintf("MountVolume.WaitForAttach failed for volume %q : %v", spec.Name(), err))
	}
}
