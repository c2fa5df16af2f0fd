// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	attachcache "k8s.io/kubernetes/pkg/controller/volume/attachdetach/cache"
	kubeletcache "k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
)

func poolSpec(name, pool string) *volume.Spec {
	return volume.NewSpecFromVolume(&v1.Volume{Name: name, VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{
		CephMonitors: []string{"10.0.0.1:6789"}, RBDPool: pool, RBDImage: "img"}}})
}

// Stock's name of a volume has no pool, and ours keeps it: two images of one name, in two
// pools behind the same monitors, are one volume for the controller and for the kubelet's
// caches. docs/user/rbd.md says what follows.
func TestPoolsCollide(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	h := newFakeHost(f)
	h.node = ""
	plugins := &volume.VolumePluginMgr{}
	f.must(plugins.InitPlugins(ProbeVolumePlugins(), nil, h))
	fast, slow := poolSpec("a", "fast"), poolSpec("b", "slow")

	// The controller: with the one attached to a node, the other counts as attached to it.
	attached := attachcache.NewActualStateOfWorld(plugins)
	name, err := attached.AddVolumeNode("", fast, "node1", "")
	f.must(err)
	if want := v1.UniqueVolumeName("kubernetes.io/rbd/[10.0.0.1:6789]:img"); name != want {
		t.Errorf("the name is %s, want %s", name, want)
	}
	other, err := attached.AddVolumeNode("", slow, "node2", "")
	f.must(err)
	if other != name || !attached.VolumeNodeExists(other, "node1") || len(attached.GetNodesForVolume(name)) != 2 {
		t.Errorf("the names are %s and %s, attached to %v", name, other, attached.GetNodesForVolume(name))
	}

	// The kubelet: both are mounted at directories of their own, but there is one entry, with
	// the pool of the first. So the device of the second is never unmounted.
	a := &rbdAttacher{plugin: &rbdPlugin{host: h}}
	at, err := a.GetDeviceMountPath(fast)
	f.must(err)
	otherAt, err := a.GetDeviceMountPath(slow)
	f.must(err)
	if at == otherAt {
		t.Errorf("both are mounted at %s", at)
	}
	mounted := kubeletcache.NewActualStateOfWorld(types.NodeName("node1"), plugins)
	for _, spec := range []*volume.Spec{fast, slow} {
		f.must(mounted.MarkVolumeAsAttached("", spec, "node1", ""))
	}
	left := mounted.GetUnmountedVolumes()
	if len(left) != 1 || left[0].VolumeSpec.Volume.RBD.RBDPool != "fast" {
		t.Errorf("the kubelet would unmount %+v", left)
	}
}
