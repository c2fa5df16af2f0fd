// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/etchosts"
)

// TestEvictedPodFreesEtcHosts: a large file goes with its evicted pod, one that the kubelet
// wrote stays, and so does that of a pod which could not be killed.
func TestEvictedPodFreesEtcHosts(t *testing.T) {
	dir, err := ioutil.TempDir("", "etchosts")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	etchosts.SetPodDir(func(uid types.UID) string { return filepath.Join(dir, string(uid)) })
	defer etchosts.SetPodDir(nil)
	for _, tc := range []struct {
		name   string
		size   int
		on     bool
		killed error
		stays  bool
	}{
		{"large", 2 << 20, true, nil, false},
		{"small", 200, true, nil, true},
		{"alive", 2 << 20, true, errors.New("timeout"), true},
		{"off", 2 << 20, false, nil, true},
	} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CountEtcHosts, tc.on)()
			file := filepath.Join(dir, tc.name, "etc-hosts")
			if err := os.MkdirAll(filepath.Dir(file), 0755); err != nil {
				t.Fatal(err)
			}
			if err := ioutil.WriteFile(file, make([]byte, tc.size), 0644); err != nil {
				t.Fatal(err)
			}
			pod := &v1.Pod{}
			pod.UID = types.UID(tc.name)
			grace := int64(3)
			err := freeingEtcHosts(func(p *v1.Pod, status v1.PodStatus, g *int64) error {
				if p != pod || status.Reason != "Evicted" || g != &grace {
					t.Errorf("%s: killed with %v, %v, %v", tc.name, p, status, g)
				}
				return tc.killed
			})(pod, v1.PodStatus{Reason: "Evicted"}, &grace)
			if err != tc.killed {
				t.Errorf("%s: %v", tc.name, err)
			}
			if _, err := os.Stat(file); (err == nil) != tc.stays {
				t.Errorf("%s: the file stays: %v, want %v", tc.name, err == nil, tc.stays)
			}
		}()
	}
}

// TestEtcHostsInMainKubelet: NewMainKubelet, which needs a whole node, says where the files are, and
// its eviction manager frees them.
func TestEtcHostsInMainKubelet(t *testing.T) {
	source, err := ioutil.ReadFile("kubelet.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"\n\tklet.countEtcHosts()\n", ", freeingEtcHosts(killPodNow("} {
		if n := strings.Count(string(source), call); n != 1 {
			t.Errorf("%q is there %d times", call, n)
		}
	}
}
