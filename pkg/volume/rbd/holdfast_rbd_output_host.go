// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"sync"

	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/volume"
)

// Where the kernel shows mapped images, and its block devices' names up to their number.
// Tests point them elsewhere.
var (
	sysRBDDevices = "/sys/bus/rbd/devices"
	devRBD        = "/dev/rbd"
)

// unmapUnused unmaps a device that an attach or a mount which failed leaves behind.
var unmapUnused = func(manager diskManager, plugin *rbdPlugin, dir, device string) {
	if err := manager.DetachDisk(plugin, dir, device); err != nil {
		glog.Errorf("rbd: %s of %s stays mapped: %v", device, dir, err)
	}
}

var (
	recordersMutex sync.Mutex
	recorders      = map[volume.VolumeHost]record.EventRecorder{}
)

// recorderOf returns what records events of a host. Volume plugins are given none, so one
// is made of the host's client, with the kubelet's name, at its first event; nil without
// a client.
func recorderOf(host volume.VolumeHost) record.EventRecorder {
	recordersMutex.Lock()
	defer recordersMutex.Unlock()
	r, ok := recorders[host]
	if !ok {
		if client := host.GetKubeClient(); client != nil {
			b := record.NewBroadcaster()
			b.StartRecordingToSink(&v1core.EventSinkImpl{Interface: client.CoreV1().Events("")})
			r = b.NewRecorder(legacyscheme.Scheme, v1.EventSource{Component: "kubelet", Host: string(host.GetNodeName())})
		}
		recorders[host] = r
	}
	return r
}

func recordEvent(host volume.VolumeHost, object runtime.Object, eventtype, reason, message string) {
	if r := recorderOf(host); r != nil {
		r.Event(object, eventtype, reason, cutTo(message, maxShownOutput))
	}
}

// nodeEvent records an event of the node that host is, nothing in the controller manager.
func nodeEvent(host volume.VolumeHost, eventtype, reason, message string) {
	name := host.GetNodeName()
	if name == "" {
		glog.V(4).Infof("rbd: no node to record %s for: %s", reason, message)
		return
	}
	// The kubelet's own events of its node have the name for the UID.
	recordEvent(host, &v1.ObjectReference{Kind: "Node", Name: string(name), UID: types.UID(name)}, eventtype, reason, message)
}
