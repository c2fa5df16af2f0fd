// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/format"
	"k8s.io/kubernetes/pkg/util/mount"
)

// subpathsDirName is the directory of a pod that has the binds:
// pods/<uid>/volume-subpaths/<volume>/<container>/<index of the volumeMount>
// (containerSubPathDirectoryName of pkg/util/mount).
const subpathsDirName = "volume-subpaths"

var (
	subpathsUnbound = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_subpath_rollback_unbound_total",
		Help: "SubPath bind mounts below volume-subpaths that were unmounted because their container has its own.",
	})
	subpathsUnbindFailed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_subpath_rollback_failed_total",
		Help: "Attempts to unmount a subPath bind mount that failed; they are repeated.",
	})
	subpathsWouldUnbind = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_subpath_rollback_would_unbind_total",
		Help: "SubPath mounts of started containers that stay below volume-subpaths because the gate SubpathUnbindAfterStart is off.",
	})
	subpathsOrphaned = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_subpath_rollback_orphans_unbound_total",
		Help: "SubPath bind mounts that were unmounted before the directory of an orphaned pod was removed.",
	})
)

func init() {
	prometheus.MustRegister(subpathsUnbound, subpathsUnbindFailed, subpathsWouldUnbind, subpathsOrphaned)
}

// subpathBinds unmounts subPath binds. Its functions are the kernel's but in
// tests.
type subpathBinds struct {
	// list returns the mount points of the kubelet's mount namespace.
	list func() ([]mount.MountPoint, error)
	// unmount unmounts one mount point, whose last component is no symlink.
	unmount func(path string) error
}

func newSubpathBinds(m mount.Interface) subpathBinds {
	b := subpathBinds{list: m.List, unmount: m.Unmount}
	if _, ok := m.(*mount.Mounter); ok {
		// Not umount(8), which looks at the mount point first and so hangs where the
		// server of a network filesystem does not answer. Not MNT_DETACH, which would
		// take along what somebody mounted below.
		b.unmount = func(path string) error { return unix.Unmount(path, unix.UMOUNT_NOFOLLOW) }
	}
	return b
}

// ownsSubpathBinds is whether the binds are of no use once a container runs. It
// is shown for docker, which mounts them into the container's mount namespace.
// A runtime that resolves the paths later, as rkt does, and a kubelet whose
// mounts are those of another mount namespace keep them as in stock.
func (kl *Kubelet) ownsSubpathBinds() bool {
	_, ok := kl.mounter.(*mount.Mounter)
	return ok && kl.containerRuntimeName == kubetypes.DockerContainerRuntime
}

// makeMountsThenUnbind is makeMounts. The function that it returns is to be
// called when the container has been started or will not be; it unmounts what
// makeMounts bound for it. It may be nil and may be called more than once.
func (kl *Kubelet) makeMountsThenUnbind(pod *v1.Pod, container *v1.Container, hostName, hostDomain, podIP string, podVolumes kubecontainer.VolumeMap) ([]kubecontainer.Mount, func(), error) {
	podDir := kl.getPodDir(pod.UID)
	paths := 0
	for i := range container.VolumeMounts {
		if container.VolumeMounts[i].SubPath != "" {
			paths++
		}
	}
	if paths == 0 || !kl.ownsSubpathBinds() {
		return makeMounts(pod, podDir, container, hostName, hostDomain, podIP, podVolumes, kl.mounter)
	}
	b := newSubpathBinds(kl.mounter)
	if !utilfeature.DefaultFeatureGate.Enabled(features.SubpathUnbindAfterStart) {
		subpathsWouldUnbind.Add(float64(paths))
		b.unblock(podDir, container.Name) // the gate may have been on
		return makeMounts(pod, podDir, container, hostName, hostDomain, podIP, podVolumes, kl.mounter)
	}
	k := subpathKey{pod.UID, container.Name}
	done := theSubpathStarts.begin(k)
	b.unblock(podDir, container.Name)
	mounts, cleanup, err := makeMounts(pod, podDir, container, hostName, hostDomain, podIP, podVolumes, kl.mounter)
	unbind := func() {
		if cleanup != nil {
			cleanup()
		}
		b.unbind(podDir, k, fmt.Sprintf("container %q of pod %q", container.Name, format.Pod(pod)))
		done()
	}
	if err != nil {
		unbind()
	}
	return mounts, unbind, err
}

// subpathTargets are the mount points of a container's subPaths, mounted or not. They
// are not looked at: a stat of one could hang.
func subpathTargets(podDir, container string) []string {
	var out []string
	top := filepath.Join(podDir, subpathsDirName)
	for _, volume := range namesIn(top) {
		dir := filepath.Join(top, volume, container)
		for _, index := range namesIn(dir) {
			out = append(out, filepath.Join(dir, index))
		}
	}
	return out
}

func namesIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		glog.Errorf("subPaths: cannot read %s: %v", dir, err)
	}
	return names
}

// asMounted is a directory of the kubelet as the kernel's table of mounts has it: an
// operator may have made the root directory, or one below it, a symbolic link. There is
// no bind below a directory that does not exist.
func asMounted(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if os.IsNotExist(err) {
		return dir, nil
	}
	return real, err
}

// mountPath is a mount point's path in the form of the rest of this file.
func mountPath(mp mount.MountPoint) string {
	return strings.TrimSuffix(mp.Path, `\040(deleted)`)
}

// unbind unmounts the binds of one container. who is for the log.
func (b subpathBinds) unbind(podDir string, k subpathKey, who string) {
	targets, mounted, err := b.look(podDir, k.container)
	if err != nil {
		subpathsUnbindFailed.Inc()
		glog.Errorf("subPaths of %s stay mounted: %v", who, err)
		return
	}
	n := b.unbindAll(targets, mounted, theSubpathStarts.isLate(k), who)
	if n > 0 {
		glog.V(2).Infof("Unmounted %d subPath bind mount(s) of %s below %s: the container has its own (feature gate %s)",
			n, who, filepath.Join(podDir, subpathsDirName), features.SubpathUnbindAfterStart)
	}
}

// look returns a container's mount points and counts the mounts of all.
func (b subpathBinds) look(podDir, container string) ([]string, map[string]int, error) {
	podDir, err := asMounted(podDir)
	if err != nil {
		return nil, nil, err
	}
	targets := subpathTargets(podDir, container)
	if len(targets) == 0 {
		return nil, nil, nil
	}
	mounted, err := b.mounted()
	return targets, mounted, err
}

// mounted counts the mounts at each mount point; one can lie on another.
func (b subpathBinds) mounted() (map[string]int, error) {
	mps, err := b.list()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, mp := range mps {
		out[mountPath(mp)]++
	}
	return out, nil
}

// unbindAll unmounts what is mounted at the targets of one container, blocks one
// of them, or each if the runtime may be late, and returns how many mounts that were.
func (b subpathBinds) unbindAll(targets []string, mounted map[string]int, late bool, who string) int {
	n := 0
	var free []string
	for _, t := range targets {
		if mounted[t] == 0 {
			continue
		}
		k, ok := b.unbindOne(t, mounted[t], who)
		n += k
		// What somebody else has unmounted since may be blocked, and is not to be twice.
		if ok && k > 0 {
			free = append(free, t)
		}
	}
	sort.Strings(free)
	for _, t := range free {
		if block(t) && !late {
			break
		}
	}
	return n
}

// unbindOne unmounts what is mounted at target and returns how many mounts that
// were; false if one stays. The table lists a mount point times times; the second
// line may be a copy that goes with the first, if the kubelet's root directory is
// bound to itself.
func (b subpathBinds) unbindOne(target string, times int, who string) (int, bool) {
	for n := 0; n < times; n++ {
		err := b.unmount(target)
		if err == syscall.EINVAL {
			return n, true // Not mounted any more.
		}
		if err != nil {
			subpathsUnbindFailed.Inc()
			glog.Warningf("Cannot unmount subPath bind mount %s of %s, will try again: %v", target, who, err)
			return n, false
		}
		subpathsUnbound.Inc()
	}
	return times, true
}

// block leaves in place of an unmounted directory an empty file, and in place
// of a file an empty directory, and returns whether it could. docker has the path
// in the container's configuration. Should it start the container again, by hand
// or because it was slow, or copy into it, it would find an empty directory where
// the user's data were; so it finds what it cannot mount, and says so. One mount
// point of a container is enough once it has been started: the path in the container
// exists and is of the other kind. In a container that was never started the runtime
// makes that path, of the kind that it finds. So where its first start may be late each
// mount point is blocked: the user's program finds a file, and not an empty directory.
//
// doCleanSubPath removes both, stock's too. doBindSubPath of a stock kubelet fails
// at such a mount point, removes it, and succeeds at the next attempt; with one
// for each subPath it would fail as often, with a longer back-off each time. Ours
// uses unblock.
func block(target string) bool {
	info, err := os.Lstat(target)
	if os.IsNotExist(err) {
		return true // The volume manager was faster, the pod is gone.
	} else if err != nil {
		glog.Errorf("subPath mount point %s: %v", target, err)
		return false
	}
	if !removable(info) {
		glog.Warningf("There are data below the unmounted subPath mount point %s; they are left alone", target)
		return false
	}
	if err := os.Remove(target); err != nil {
		// It has data, or old kernels: it is mounted in another mount namespace.
		glog.Warningf("The unmounted subPath mount point %s is left as it is: %v", target, err)
		return false
	}
	if info.IsDir() {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0); err == nil {
			err = f.Close()
		}
	} else {
		err = os.Mkdir(target, 0)
	}
	if err != nil {
		glog.Errorf("Cannot block the unmounted subPath mount point %s: %v", target, err)
	}
	return err == nil
}

// removable is a directory, which os.Remove removes if it is empty, or an empty
// file.
func removable(info os.FileInfo) bool {
	return info.IsDir() || info.Mode().IsRegular() && info.Size() == 0
}

// unblock undoes block for one container, so that its subPaths can be bound
// again.
func (b subpathBinds) unblock(podDir, container string) {
	targets, mounted, err := b.look(podDir, container)
	if err != nil {
		glog.Errorf("subPaths below %s: %v", podDir, err)
		return
	}
	for _, t := range targets {
		if mounted[t] > 0 {
			continue
		}
		if info, err := os.Lstat(t); err != nil || !removable(info) {
			continue
		}
		// A directory that is not empty stays, and doBindSubPath covers it.
		if err := os.Remove(t); err != nil {
			glog.V(4).Infof("subPath mount point %s stays: %v", t, err)
		}
	}
}
