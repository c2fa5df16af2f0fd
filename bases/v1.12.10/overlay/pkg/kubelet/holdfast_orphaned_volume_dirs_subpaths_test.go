// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// TestHoldfastOrphanedVolumeDirsSubpathsAlone: 1.12 keeps a pod's directory for what is left of its
// subPaths, also where no volume's directory is left.
func TestHoldfastOrphanedVolumeDirsSubpathsAlone(t *testing.T) {
	for name, test := range map[string]struct {
		off     bool
		paths   []string
		removed bool
	}{
		"empty targets":  {paths: []string{"volumes/kubernetes.io~nfs/", "volume-subpaths/pv/c/0/", "volume-subpaths/pv/c/1"}, removed: true},
		"an empty root":  {paths: []string{"volumes/", "volume-subpaths/"}, removed: true},
		"gate off":       {off: true, paths: []string{"volumes/kubernetes.io~nfs/", "volume-subpaths/pv/c/0/"}},
		"a file":         {paths: []string{"volumes/kubernetes.io~nfs/", "volume-subpaths/pv/c/0/data=z"}},
		"a link":         {paths: []string{"volumes/kubernetes.io~nfs/", "volume-subpaths/pv/c/0->/etc"}},
		"a deep target":  {paths: []string{"volumes/kubernetes.io~nfs/", "volume-subpaths/pv/c/0/d/"}},
		"a file as root": {paths: []string{"volumes/kubernetes.io~nfs/", "volume-subpaths=z"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OrphanedVolumeDirs, !test.off)()
			defer func() { theOrphanedPods = orphanedPods{} }()
			tk := newTestKubelet(t, false)
			defer tk.Cleanup()
			kl := tk.kubelet
			kl.mounter = mount.New("")
			kl.volumeManager = syncedVolumes{kl.volumeManager, true}
			podDir := kl.getPodDir("u1")
			put(t, podDir, test.paths...)
			there := func() bool {
				if err := kl.cleanupOrphanedPodDirs(nil, nil); err != nil {
					t.Error(err)
				}
				_, err := os.Lstat(podDir)
				return err == nil
			}
			for i := 0; i < 3; i++ {
				if !there() {
					t.Fatal("removed within the minute")
				}
				tk.fakeClock.Step(29 * time.Second)
			}
			there()
			tk.fakeClock.Step(2 * time.Minute)
			if there() == test.removed {
				t.Errorf("removed is %v, want %v: %q", !test.removed, test.removed, tree(t, podDir))
			}
		})
	}
}
