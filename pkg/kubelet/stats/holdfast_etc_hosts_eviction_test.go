// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"

	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"github.com/stretchr/testify/mock"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	statsapi "k8s.io/kubernetes/pkg/kubelet/apis/stats/v1alpha1"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

// etcHostsSize is the size of the file etc-hosts in a pod's folder.
const etcHostsSize = 1 << 20

func dirWithEtcHosts(t *testing.T) string {
	dir, err := ioutil.TempDir("", "etchosts")
	if err != nil {
		t.Fatal(err)
	}
	if err := ioutil.WriteFile(filepath.Join(dir, "etc-hosts"), make([]byte, etcHostsSize), 0644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEtcHostsInEphemeralStorage(t *testing.T) {
	dir := dirWithEtcHosts(t)
	defer os.RemoveAll(dir)
	etchosts.SetPodDir(func(types.UID) string { return dir })
	defer etchosts.SetPodDir(nil)
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CountEtcHosts, on)()
			got := calcPodEphemeralStorage("uid", nil, nil, &cadvisorapiv2.FsInfo{})
			if on && (got.UsedBytes == nil || *got.UsedBytes < etcHostsSize || got.InodesUsed == nil || *got.InodesUsed != 1) || !on && (got.UsedBytes != nil || got.InodesUsed != nil) {
				t.Errorf("gate %v: %v bytes, %v inodes", on, got.UsedBytes, got.InodesUsed)
			}
		}()
	}
}

// TestEtcHostsInPodStats: both providers of a pod's statistics add it.
func TestEtcHostsInPodStats(t *testing.T) {
	dir := dirWithEtcHosts(t)
	defer os.RemoveAll(dir)
	etchosts.SetPodDir(func(uid types.UID) string {
		if uid != "UIDpod" {
			t.Errorf("asked for pod %q", uid)
		}
		return dir
	})
	defer etchosts.SetPodDir(nil)
	node := new(cadvisortest.Mock)
	node.On("ContainerInfoV2", "/", mock.Anything).Return(map[string]cadvisorapiv2.ContainerInfo{"/pod-c": getTestContainerInfo(1, "pod", "ns", "c")}, nil)
	node.On("RootFsInfo").Return(getTestFsInfo(2), nil)
	node.On("ImagesFsInfo").Return(getTestFsInfo(3), nil)
	used := map[string]uint64{} // with the gate on less with the gate off
	note := func(provider string, on bool, s *statsapi.FsStats) {
		switch {
		case s == nil || on && s.UsedBytes == nil:
			t.Errorf("%s, gate %v: %+v", provider, on, s)
		case on:
			used[provider] += *s.UsedBytes
		case s.UsedBytes != nil:
			used[provider] -= *s.UsedBytes
		}
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CountEtcHosts, on)()
			pods, err := newCadvisorStatsProvider(node, &fakeResourceAnalyzer{}, nil).ListPodStats()
			if err != nil || len(pods) != 1 {
				t.Fatalf("%v, %v", pods, err)
			}
			note("cadvisor", on, pods[0].EphemeralStorage)
			cri := &criStatsProvider{resourceAnalyzer: &fakeResourceAnalyzer{}}
			pod := cri.makePodStorageStats(&statsapi.PodStats{PodRef: statsapi.PodReference{UID: "UIDpod"}}, &cadvisorapiv2.FsInfo{})
			note("CRI", on, pod.EphemeralStorage)
		}()
	}
	for _, provider := range []string{"cadvisor", "CRI"} {
		if n := used[provider]; n < etcHostsSize || n > 2*etcHostsSize {
			t.Errorf("%s adds %d bytes", provider, n)
		}
	}
}
