// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"io/ioutil"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var rbdDetachLeftovers = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_rbd_detach_leftovers_total",
	Help: "Images that an earlier kubelet left behind, by what became of them: detached, kept, or would_detach with the feature gate RBDDetachLeftovers off.",
}, []string{"result"})

func init() {
	prometheus.MustRegister(rbdDetachLeftovers)
}

// cleanUpDelay is the time from a kubelet's start until leftovers are looked for: the
// kubelet is whole by then, and volumes of pods that run have their mounts in any case.
var cleanUpDelay = 5 * time.Second

// startCleanUp has a kubelet look once, in the background, for what an earlier one left. The
// controller manager has no node and no such directories.
func (plugin *rbdPlugin) startCleanUp() {
	if !robustDetach() || plugin.host.GetNodeName() == "" {
		return
	}
	time.AfterFunc(cleanUpDelay, plugin.cleanUp)
}

// cleanUp detaches each image below the plugin's directory that nothing on this machine
// has mounted elsewhere, and that this process has not begun to attach. With the feature
// gate RBDDetachLeftovers off it only reports those that are mapped.
func (plugin *rbdPlugin) cleanUp() {
	parent := path.Dir(makePDNameInternal(plugin.host, "", ""))
	entries, err := ioutil.ReadDir(parent)
	if err != nil {
		if !os.IsNotExist(err) {
			glog.Errorf("rbd: cannot look for leftovers: %v", err)
		}
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			plugin.cleanUpDir(path.Join(parent, e.Name()))
		}
	}
}

func (plugin *rbdPlugin) cleanUpDir(dir string) {
	defer lockImage(dir)()
	if timesAttached(dir) > 0 {
		return
	}
	left, err := plugin.isLeftover(dir)
	if err == nil && !left {
		return
	}
	if err == nil && !utilfeature.DefaultFeatureGate.Enabled(features.RBDDetachLeftovers) {
		plugin.reportLeftover(dir)
		return
	}
	if err == nil {
		d, newErr := plugin.newDetacherInternal(&RBDUtil{})
		if err = newErr; err == nil {
			err = d.(*rbdDetacher).unmountLocked(dir)
		}
	}
	if err != nil {
		rbdDetachLeftovers.WithLabelValues("kept").Inc()
		message := fmt.Sprintf("An earlier kubelet left an image at %s, and it stays: %v", dir, err)
		glog.Warning(message)
		nodeEvent(plugin.host, v1.EventTypeWarning, "RBDLeftoverKept", message)
		return
	}
	rbdDetachLeftovers.WithLabelValues("detached").Inc()
	message := fmt.Sprintf("Detached the image that an earlier kubelet left at %s", dir)
	glog.Info(message)
	nodeEvent(plugin.host, v1.EventTypeNormal, "RBDLeftoverDetached", message)
}

// reportLeftover says that an image stays mapped. A directory without one harms nobody.
func (plugin *rbdPlugin) reportLeftover(dir string) {
	device, err := mappedAt(dir)
	if err != nil || device == "" {
		return
	}
	rbdDetachLeftovers.WithLabelValues("would_detach").Inc()
	message := fmt.Sprintf("An earlier kubelet may have left the image at %s, mapped as %s; it stays, as the feature gate %s is off", dir, device, features.RBDDetachLeftovers)
	glog.Warning(message)
	nodeEvent(plugin.host, v1.EventTypeWarning, "RBDLeftoverKept", message)
}

// isLeftover says whether nothing but dir itself has the image's device mounted. What is
// mounted at dir but is no image of that name is not ours to unmount.
func (plugin *rbdPlugin) isLeftover(dir string) (bool, error) {
	device, err := mappedAt(dir)
	if err != nil {
		return false, err
	}
	mps, err := plugin.host.GetMounter(rbdPluginName).List()
	if err != nil {
		return false, err
	}
	// The table has the path without symbolic links. The directory need not be there any more.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	} else if !os.IsNotExist(err) {
		return false, err
	}
	for _, mp := range mps {
		if mp.Path == dir && mp.Device != device || mp.Path != dir && mp.Device == device && device != "" {
			return false, nil
		}
	}
	return true, nil
}
