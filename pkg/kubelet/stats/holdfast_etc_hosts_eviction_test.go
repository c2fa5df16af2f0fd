// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"

	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

func TestEtcHostsInEphemeralStorage(t *testing.T) {
	dir, err := ioutil.TempDir("", "etchosts")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const size = 1 << 20
	if err := ioutil.WriteFile(filepath.Join(dir, "etc-hosts"), make([]byte, size), 0644); err != nil {
		t.Fatal(err)
	}
	etchosts.SetPodDir(func(types.UID) string { return dir })
	defer etchosts.SetPodDir(nil)
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CountEtcHosts, on)()
			got := calcPodEphemeralStorage("uid", nil, nil, &cadvisorapiv2.FsInfo{})
			if on && (got.UsedBytes == nil || *got.UsedBytes < size || got.InodesUsed == nil || *got.InodesUsed != 1) || !on && (got.UsedBytes != nil || got.InodesUsed != nil) {
				t.Errorf("gate %v: %v bytes, %v inodes", on, got.UsedBytes, got.InodesUsed)
			}
		}()
	}
}
