// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	statsapi "k8s.io/kubernetes/pkg/kubelet/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

// TestEtcHostsCounts: the pod that fills its /etc/hosts is evicted before one that uses
// less, and its limit holds.
func TestEtcHostsCounts(t *testing.T) {
	dir, err := ioutil.TempDir("", "etchosts")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(filepath.Join(dir, "writer"), 0755); err != nil {
		t.Fatal(err)
	}
	const size = 8 << 20
	if err := ioutil.WriteFile(filepath.Join(dir, "writer", "etc-hosts"), make([]byte, size), 0644); err != nil {
		t.Fatal(err)
	}
	etchosts.SetPodDir(func(uid types.UID) string { return filepath.Join(dir, string(uid)) })
	defer etchosts.SetPodDir(nil)

	pod := func(name string) *v1.Pod {
		p := newPod(name, 0, []v1.Container{newContainer("main", newResourceList("", "", ""), newResourceList("", "", ""))}, nil)
		p.UID = types.UID(name)
		return p
	}
	writer, other := pod("writer"), pod("other")
	used := uint64(size / 2)
	stats := map[*v1.Pod]statsapi.PodStats{
		writer: {PodRef: statsapi.PodReference{UID: "writer"}},
		other:  {PodRef: statsapi.PodReference{UID: "other"}, Containers: []statsapi.ContainerStats{{Name: "main", Rootfs: &statsapi.FsStats{UsedBytes: &used}}}},
	}
	statsFn := func(p *v1.Pod) (statsapi.PodStats, bool) { return stats[p], true }
	all := []fsStatsType{fsStatsRoot, fsStatsLogs, fsStatsLocalVolumeSource}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CountEtcHosts, on)()
			pods := []*v1.Pod{other, writer}
			rankDiskPressureFunc(all, localDisk)(pods, statsFn)
			if (pods[0] == writer) != on {
				t.Errorf("gate %v: %s is evicted first", on, pods[0].Name)
			}
			for name, usage := range map[string]func() (v1.ResourceList, error){
				"ranking": func() (v1.ResourceList, error) { return podDiskUsage(stats[writer], writer, all) },
				"limit":   func() (v1.ResourceList, error) { return podLocalEphemeralStorageUsage(stats[writer], writer, all) },
			} {
				got, err := usage()
				if err != nil {
					t.Fatal(err)
				}
				disk, inodes := got[localDisk], got[resourceInodes]
				if (disk.Value() >= size) != on || (inodes.Value() == 1) != on {
					t.Errorf("gate %v, %s: %d bytes, %d inodes", on, name, disk.Value(), inodes.Value())
				}
			}
			// What does not measure local volumes does not measure this.
			got, err := podDiskUsage(stats[writer], writer, []fsStatsType{fsStatsRoot})
			if disk := got[localDisk]; err != nil || disk.Value() != 0 {
				t.Errorf("gate %v: %d bytes of the containers' file systems (%v)", on, disk.Value(), err)
			}
		}()
	}
}
