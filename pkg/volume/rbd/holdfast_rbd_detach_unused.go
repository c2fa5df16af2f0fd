// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
)

var rbdDetachUnused = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_rbd_detach_unused_total",
	Help: "RBD devices that an attach or a mount which failed left behind, and that could not be unmapped at once, by what became of them: unmapped, taken (mounted or attached anew), or kept.",
}, []string{"result"})

func init() {
	prometheus.MustRegister(rbdDetachUnused)
	unmapAtOnce := unmapUnused
	unmapUnused = func(manager diskManager, plugin *rbdPlugin, dir, device string) {
		if !robustDetach() {
			unmapAtOnce(manager, plugin, dir, device)
			return
		}
		(&unusedDevice{manager, plugin, dir, device, timesAttached(dir), unusedFirstDelay}).try(0)
	}
}

const (
	// An unmap that fails is tried again after 10 s, 20 s and so on, twelve times in 40 minutes.
	// The kubelet does not: the volume never was mounted, so nothing detaches it, and no other
	// node gets the image.
	unusedFirstDelay = 10 * time.Second
	unusedMaxDelay   = 5 * time.Minute
	unusedMaxSum     = 40 * time.Minute
)

// afterDelay is time.AfterFunc. Tests do not wait.
var afterDelay = func(d time.Duration, f func()) { time.AfterFunc(d, f) }

// unusedDevice is a device that is mapped for nothing.
type unusedDevice struct {
	manager diskManager
	plugin  *rbdPlugin
	dir     string
	// device is "" where the one is meant that belongs at dir.
	device string
	// attaches are those at the image until now. One more takes care of the device itself.
	attaches int
	delay    time.Duration
}

// try is called with other operations at the image excluded, and when so much was waited.
func (u *unusedDevice) try(waited time.Duration) {
	if u.isTaken() {
		if waited > 0 {
			rbdDetachUnused.WithLabelValues("taken").Inc()
		}
		return
	}
	err := u.manager.DetachDisk(u.plugin, u.dir, u.device)
	if err == nil {
		if waited > 0 {
			glog.Infof("rbd: unmapped what stayed mapped for %s", u.dir)
			rbdDetachUnused.WithLabelValues("unmapped").Inc()
		}
		return
	}
	glog.Errorf("rbd: %s stays mapped for %s, where nothing is mounted: %v", u.device, u.dir, err)
	if waited == 0 || waited >= unusedMaxSum {
		next := "trying again"
		if waited > 0 {
			next = "unmap it by hand"
			rbdDetachUnused.WithLabelValues("kept").Inc()
		}
		nodeEvent(u.plugin.host, v1.EventTypeWarning, "RBDDeviceKept",
			fmt.Sprintf("The RBD device %s stays mapped for %s, where nothing is mounted, %s: %v", u.device, u.dir, next, err))
	}
	if waited >= unusedMaxSum {
		return
	}
	delay := u.delay
	if u.delay *= 2; u.delay > unusedMaxDelay {
		u.delay = unusedMaxDelay
	}
	afterDelay(delay, func() { u.again(waited + delay) })
}

// again tries once more, unless the image was attached meanwhile.
func (u *unusedDevice) again(waited time.Duration) {
	defer lockImage(u.dir)()
	if timesAttached(u.dir) != u.attaches {
		rbdDetachUnused.WithLabelValues("taken").Inc()
		return
	}
	u.try(waited)
}

// isTaken says whether the device is mounted anywhere, or maps another image by now. Where that
// cannot be told the kernel decides, which unmaps nothing that is mounted.
func (u *unusedDevice) isTaken() bool {
	device := u.device
	if device == "" {
		var err error
		if device, err = mappedAt(u.dir); err != nil || device == "" {
			return false
		}
	}
	if err := checkDevice(device, u.dir); err != nil {
		glog.Warning(err)
		return true
	}
	mps, err := u.plugin.host.GetMounter(rbdPluginName).List()
	if err != nil {
		glog.Warningf("rbd: cannot tell where %s is mounted: %v", device, err)
		return false
	}
	for _, mp := range mps {
		if mp.Device == device {
			glog.Warningf("rbd: %s stays mapped, it is mounted at %s", device, mp.Path)
			return true
		}
	}
	return false
}

// afterMapTimeout is called where an image was mapped and its device did not appear in time. With
// the mapping goes what RBDLegacyLock has taken.
func (util *RBDUtil) afterMapTimeout(b *rbdMounter, dir string) {
	if robustDetach() {
		unmapUnused(util, b.plugin, dir, "")
	}
}
