// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/ioutil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/util/mount"
)

const (
	// orphanedVolumeDirsAfter is how long a pod's volume directories are left to the volume
	// manager after they were first seen without a pod, and how long until a pod is looked at
	// again whose directories have to stay.
	orphanedVolumeDirsAfter = time.Minute
	// maxOrphanedVolumeDirs is how many directories are read in one sync (every 2 s).
	maxOrphanedVolumeDirs = 200
	// maxOrphanedPodsTracked is how many orphaned pods are remembered.
	maxOrphanedPodsTracked = 1000
)

var orphanedVolumeDirsRemoved = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_orphaned_volume_dirs_removed_total",
	Help: "Empty, unmounted volume directories of pods that are gone, removed by the kubelet (gate OrphanedVolumeDirs).",
})

func init() {
	prometheus.MustRegister(orphanedVolumeDirsRemoved)
}

// orphanedPods says when an orphaned pod is looked at next. Only the sync loop uses it.
type orphanedPods map[types.UID]time.Time

var theOrphanedPods = orphanedPods{}

// orphanedVolumeDirs removes, within one sync, the volume directories of orphaned pods that
// are empty and not mounted. A nil one removes nothing.
type orphanedVolumeDirs struct {
	podsDir   string // without symbolic links, as in the table of mounts
	mountInfo func() ([]byte, error)
	now       time.Time
	due, seen orphanedPods
	budget    int // directories that may yet be read
}

// newOrphanedVolumeDirs is called at the start of each sync. It returns nil if there is
// nothing to be done: the gate is off; the mounts are those of another mount namespace, so
// that this process' table does not show them; or the volume manager has not yet looked at
// what an earlier kubelet left. An attached volume that nothing but its empty directory tells
// of would stay attached without that directory.
func (kl *Kubelet) newOrphanedVolumeDirs() *orphanedVolumeDirs {
	if !utilfeature.DefaultFeatureGate.Enabled(features.OrphanedVolumeDirs) {
		return nil
	}
	if _, ok := kl.mounter.(*mount.Mounter); !ok || !kl.volumeManager.ReconcilerStatesHasBeenSynced() {
		return nil
	}
	podsDir, err := filepath.EvalSymlinks(kl.getPodsDir())
	if err != nil {
		return nil
	}
	o := &orphanedVolumeDirs{
		podsDir:   podsDir,
		mountInfo: func() ([]byte, error) { return ioutil.ReadFile("/proc/self/mountinfo") },
		now:       kl.clock.Now(),
		due:       theOrphanedPods,
		seen:      orphanedPods{},
		budget:    maxOrphanedVolumeDirs,
	}
	// What this sync does not find is no orphan any more, and is forgotten.
	theOrphanedPods = o.seen
	return o
}

// remove removes the volume directories of a pod that is gone, has no running containers and
// no volumes that the volume manager knows as mounted. It is all or nothing: it reports
// whether the pod has no volume directory any more. If it does not, the pod stays as in
// stock. No file is removed, nothing that is not empty, and nothing recursively.
//
// No pod is added while it runs, as the sync loop calls it. A mount that the volume manager
// began before the pod went either comes first, and rmdir says EBUSY, or finds no directory.
func (o *orphanedVolumeDirs) remove(uid types.UID) bool {
	if o == nil || len(o.seen) >= maxOrphanedPodsTracked {
		return false
	}
	next, ok := o.due[uid]
	if !ok {
		next = o.now.Add(orphanedVolumeDirsAfter)
	}
	o.seen[uid] = next
	if o.now.Before(next) || o.budget <= 0 {
		return false
	}
	full := o.budget == maxOrphanedVolumeDirs
	n, err := o.removeDirs(uid)
	if err != errOrphanedVolumeDirsBudget || full {
		o.seen[uid] = o.now.Add(orphanedVolumeDirsAfter)
	}
	orphanedVolumeDirsRemoved.Add(float64(n))
	if n > 0 {
		glog.Infof("Orphaned pod %q: removed %d empty volume directories that were not mounted (feature gate %s)", uid, n, features.OrphanedVolumeDirs)
	}
	if err != nil {
		glog.V(4).Infof("Orphaned pod %q: the volume directories stay: %v", uid, err)
		return false
	}
	delete(o.seen, uid)
	return true
}

// removeDirs returns how many volume directories it removed. An error says why the pod's
// directory has to stay.
func (o *orphanedVolumeDirs) removeDirs(uid types.UID) (int, error) {
	// Before anything is opened: a mount may be one whose server does not answer.
	if err := o.noMount(uid); err != nil {
		return 0, err
	}
	pod, err := openDirAt(unix.AT_FDCWD, filepath.Join(o.podsDir, string(uid)))
	if err != nil {
		return 0, err
	}
	defer pod.Close()
	volumes, err := openDirAt(int(pod.Fd()), config.DefaultKubeletVolumesDirName)
	if err != nil {
		return 0, err
	}
	defer volumes.Close()
	plugins, err := o.read(volumes)
	if err != nil {
		return 0, err
	}
	type volumeDir struct {
		plugin *os.File
		name   string
	}
	var dirs []volumeDir
	for _, name := range plugins {
		plugin, err := openDirAt(int(volumes.Fd()), name)
		if err != nil {
			return 0, err
		}
		defer plugin.Close()
		names, err := o.read(plugin)
		if err != nil {
			return 0, err
		}
		for _, name := range names {
			if err := o.empty(plugin, name); err != nil {
				return 0, err
			}
			dirs = append(dirs, volumeDir{plugin, name})
		}
	}
	// When the volume directories are gone the pod's directory is removed as in stock, with
	// all that is in it. So that must not have more of a volume than the targets of binds.
	if err := o.bindTargets(pod, subpathTargetsDir, 0); err != nil && err != unix.ENOENT {
		return 0, err
	}
	if err := o.noMount(uid); err != nil {
		return 0, err
	}
	n := 0
	for _, d := range dirs {
		if err := unix.Unlinkat(int(d.plugin.Fd()), d.name, unix.AT_REMOVEDIR); err != nil {
			return n, fmt.Errorf("rmdir %s: %v", d.name, err)
		}
		n++
	}
	return n, o.noMount(uid)
}

// subpathTargetsDir has the mount points of subPaths, <volume>/<container>/<index>, in a
// pod's directory.
const subpathTargetsDir = "volume-subpaths"

// bindTargets looks whether name in dir has nothing but what the kubelet makes there to bind
// subPaths on: empty directories and, for the subPath of a file, empty files.
func (o *orphanedVolumeDirs) bindTargets(dir *os.File, name string, depth int) error {
	// O_PATH opens nothing: not a device, not what a link points to.
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	unix.Close(fd)
	if err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 && depth == 3:
		return nil
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || depth > 3:
		return fmt.Errorf("%s in %s is no empty target of a bind mount", name, dir.Name())
	}
	d, err := openDirAt(int(dir.Fd()), name)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := o.read(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := o.bindTargets(d, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// empty returns an error if name in dir is anything but a directory without entries.
func (o *orphanedVolumeDirs) empty(dir *os.File, name string) error {
	d, err := openDirAt(int(dir.Fd()), name)
	if err != nil {
		return err
	}
	defer d.Close()
	if o.budget--; o.budget < 0 {
		return errOrphanedVolumeDirsBudget
	}
	names, err := d.Readdirnames(1)
	if len(names) > 0 {
		return fmt.Errorf("%s is not empty", name)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

var errOrphanedVolumeDirsBudget = errors.New("more directories than are read in one sync")

// read returns the names in dir. There are no more of them than directories may be read.
func (o *orphanedVolumeDirs) read(dir *os.File) ([]string, error) {
	if o.budget--; o.budget < 0 {
		return nil, errOrphanedVolumeDirsBudget
	}
	names, err := dir.Readdirnames(o.budget + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(names) > o.budget {
		return nil, errOrphanedVolumeDirsBudget
	}
	return names, nil
}

// openDirAt opens a directory, and nothing that a symbolic link points to.
func openDirAt(fd int, name string) (*os.File, error) {
	f, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(f), name), nil
}

// noMount returns an error if anything is mounted at or below the pod's directory. It asks
// the table of mounts: device numbers do not show a bind mount of the same filesystem.
func (o *orphanedVolumeDirs) noMount(uid types.UID) error {
	podDir := filepath.Join(o.podsDir, string(uid))
	table, err := o.stableMountInfo()
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(table), "\n") {
		// proc(5): ID, parent, device, root, mount point, …
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if path := unescapeMountInfo(fields[4]); path == podDir || strings.HasPrefix(path, podDir+"/") {
			return fmt.Errorf("%s is a mount point", path)
		}
	}
	return nil
}

// stableMountInfo returns the table of mounts when it reads the same twice. The kernel gives
// it in pieces, and a mount that comes or goes in between can hide another.
func (o *orphanedVolumeDirs) stableMountInfo() ([]byte, error) {
	last, err := o.mountInfo()
	for i := 0; i < 3 && err == nil; i++ {
		var table []byte
		table, err = o.mountInfo()
		if err == nil && len(table) > 0 && bytes.Equal(table, last) {
			return table, nil
		}
		last = table
	}
	if err == nil {
		err = errors.New("the table of mounts is empty or changes all the time")
	}
	return nil, err
}

// unescapeMountInfo undoes what the kernel does with space, tab, newline and backslash: it
// writes \ and three octal digits.
func unescapeMountInfo(s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(c))
				i += 3
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
