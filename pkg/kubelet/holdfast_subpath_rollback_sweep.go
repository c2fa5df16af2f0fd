// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/golang/glog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// subpathSweepPeriod is how often binds are looked for that no start of a
// container unmounted: those of another kubelet, of a kubelet that was killed
// during a start, and those that were busy.
const subpathSweepPeriod = 30 * time.Second

// startSubpathSweep looks for binds that no start of a container unmounted, at
// once and then every subpathSweepPeriod.
func (kl *Kubelet) startSubpathSweep() {
	if kl.ownsSubpathBinds() && utilfeature.DefaultFeatureGate.Enabled(features.SubpathUnbindAfterStart) {
		go wait.Until(func() { newSubpathBinds(kl.mounter).sweep(kl.getPodsDir(), kl.containerRuntime.GetPods) }, subpathSweepPeriod, wait.NeverStop)
	}
}

// sweep unmounts the binds of the containers that run and of those that are not
// about to. A container that was created and not started may be one that the
// runtime is starting for an earlier process of the kubelet, or that is late.
func (b subpathBinds) sweep(podsDir string, getPods func(all bool) ([]*kubecontainer.Pod, error)) {
	podsDir, err := asMounted(podsDir)
	if err != nil {
		glog.Errorf("Cannot look for subPath bind mounts: %v", err)
		return
	}
	mps, err := b.list()
	if err != nil {
		glog.Errorf("Cannot look for subPath bind mounts: %v", err)
		return
	}
	binds := map[subpathKey]map[string]int{}
	for _, mp := range mps {
		path := mountPath(mp)
		if k, ok := parseSubpathTarget(podsDir, path); ok {
			if binds[k] == nil {
				binds[k] = map[string]int{}
			}
			binds[k][path]++
		}
	}
	late := theSubpathStarts.allLate()
	if len(binds) == 0 && len(late) == 0 {
		return
	}
	pods, err := getPods(true)
	if err != nil {
		glog.Errorf("Cannot tell which of %d containers' subPath bind mounts are in use, will try again: %v", len(binds), err)
		return
	}
	running, pending := map[subpathKey]bool{}, map[subpathKey]bool{}
	for _, p := range pods {
		for _, c := range p.Containers {
			k := subpathKey{p.ID, c.Name}
			switch c.State {
			case kubecontainer.ContainerStateRunning:
				running[k] = true
			case kubecontainer.ContainerStateExited:
			default:
				pending[k] = true
			}
		}
	}
	theSubpathStarts.settle(late, pending)
	for k, paths := range binds {
		if pending[k] && !running[k] {
			continue
		}
		theSubpathStarts.unlessStarting(k, func() {
			var targets []string
			for path := range paths {
				targets = append(targets, path)
			}
			n := b.unbindAll(targets, paths, pending[k], fmt.Sprintf("container %q of pod %s", k.container, k.pod))
			if n > 0 {
				glog.Infof("Unmounted %d subPath bind mount(s) of container %q of pod %s that an earlier kubelet left (feature gate %s)",
					n, k.container, k.pod, features.SubpathUnbindAfterStart)
			}
		})
	}
}

// parseSubpathTarget reads podsDir/<uid>/volume-subpaths/<volume>/<container>/<n>.
func parseSubpathTarget(podsDir, path string) (subpathKey, bool) {
	if !strings.HasPrefix(path, podsDir+"/") {
		return subpathKey{}, false
	}
	f := strings.Split(path[len(podsDir)+1:], "/")
	if len(f) != 5 || f[1] != subpathsDirName {
		return subpathKey{}, false
	}
	return subpathKey{types.UID(f[0]), f[3]}, true
}

// unmountOrphanedSubpaths unmounts the subPath binds of a pod that is gone and
// has no running containers. The volume manager need not know of them: a hostPath
// volume of a pod that was deleted while no kubelet ran is not reconstructed
// (kubernetes/kubernetes#61446). An error means that the pod's directory must
// not be removed.
func (kl *Kubelet) unmountOrphanedSubpaths(uid types.UID) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.OrphanedPodSubpathUnmount) {
		return nil
	}
	return newSubpathBinds(kl.mounter).unmountOrphaned(kl.getPodsDir(), uid)
}

// unmountOrphaned unmounts the binds themselves and nothing below them: what is
// mounted there may be the host's own mount, which appears in a bind of a shared
// mount and would go with it. Such a bind is busy and stays.
func (b subpathBinds) unmountOrphaned(podsDir string, uid types.UID) error {
	podsDir, err := asMounted(podsDir)
	if err != nil {
		return fmt.Errorf("orphaned pod %q found, but it is not known where it is: %v", uid, err)
	}
	mps, err := b.list()
	if err != nil {
		return fmt.Errorf("orphaned pod %q found, but its volume subpaths are not known: %v", uid, err)
	}
	for _, mp := range mps {
		path := mountPath(mp)
		if !strings.HasPrefix(path, filepath.Join(podsDir, string(uid), subpathsDirName)+"/") {
			continue
		}
		if _, ok := parseSubpathTarget(podsDir, path); !ok {
			return fmt.Errorf("orphaned pod %q found, but %s is a mount point in a volume subpath", uid, path)
		}
		if err := b.unmount(path); err != nil && err != syscall.EINVAL {
			subpathsUnbindFailed.Inc()
			return fmt.Errorf("orphaned pod %q found, but volume subpath %s is still mounted: %v", uid, path, err)
		}
		subpathsOrphaned.Inc()
		glog.Infof("Orphaned pod %q: unmounted volume subpath %s", uid, path)
	}
	return nil
}
