// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"
	"path/filepath"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var (
	subPathsExchanged = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_subpath_symlink_race_exchanged_total",
		Help: "SubPaths that were another file after the bind mount than when they were opened. What was opened is mounted.",
	})
	subPathsOtherMounted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_subpath_symlink_race_other_mounted_total",
		Help: "SubPaths for which mount(8) mounted another file than the kubelet had opened. With the feature gate SubpathMountByFD off the pod has it; a kubelet with --containerized and the gate on unmounts it.",
	})
)

func init() {
	prometheus.MustRegister(subPathsExchanged, subPathsOtherMounted)
}

// bindSubPath bind-mounts the file of fd, which has the path subPath and is named by
// source, the link /proc/<pid>/fd/<fd>, at target.
//
// mount(8) resolves the link to a path and passes that to mount(2), which looks it up
// again: who exchanges a directory of the path for a symlink in between gets another file
// mounted, of the node for example. mount(2) goes through the link to the file itself.
func bindSubPath(mounter Interface, source string, fd int, subPath, target string, options []string) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.SubpathMountByFD) {
		err := mounter.Mount(source, target, "" /*fstype*/, options)
		if _, ok := mounter.(*Mounter); ok && err == nil && !isSameFile(fd, target) {
			subPathsOtherMounted.Inc()
		}
		return err
	}
	var err error
	switch m := mounter.(type) {
	case *Mounter:
		if err = unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount failed: %v\nBind-mounting %s (%s) at %s", err, source, subPath, target)
		}
		// The flags, as Mount does it. The kernel does not look at the source again. With -n no
		// line is written into /etc/mtab where that is a file: nothing would remove it, as
		// subpath-rollback unmounts with umount(2).
		_, remountOptions := isBind(options)
		err = m.doMount(defaultMountCommand, "-n", source, target, "", remountOptions)
	case *NsenterMounter:
		return bindInHost(m, fd, subPath, target, options)
	default:
		return mounter.Mount(source, target, "" /*fstype*/, options)
	}
	if err == nil && !isSameFile(fd, subPath) {
		subPathsExchanged.Inc()
		glog.Warningf("SubPath %q was exchanged for another file while it was mounted at %s: the file that was checked is mounted (feature gate %s)",
			subPath, target, features.SubpathMountByFD)
	}
	return err
}

// bindInHost is bindSubPath of a kubelet that has a mount namespace of its own. A mount(2)
// in the host's refuses what is not mounted there (EINVAL), and the opened file is in the
// kubelet's. So the bind is made by path, and undone if it is another file.
func bindInHost(mounter Interface, fd int, subPath, target string, options []string) error {
	if err := mounter.Mount(subPath, target, "" /*fstype*/, options); err != nil {
		return err
	}
	same, err := compareFile(fd, target)
	if same || isHostFile(subPath, target) {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("cannot compare what is mounted at %s with subPath %s: %v", target, subPath, err)
	} else {
		subPathsOtherMounted.Inc()
		err = fmt.Errorf("%s is not the file that was opened for subPath %s: the path was changed meanwhile, or mounts of the host do not reach the kubelet's container", target, subPath)
	}
	if e := mounter.Unmount(target); e != nil {
		err = fmt.Errorf("%v; unmounting it: %v", err, e)
	}
	return err
}

// hostRoot is where a kubelet in a container has the root directory of the host, as
// hostProcMountsPath says too.
var hostRoot = "/rootfs"

// isHostFile says whether target is the host's file of the path subPath, without a symlink
// in it. The volume may be a hostPath that the kubelet's container has too, another
// directory of that name: /etc for example. Then the opened file is the container's, and
// what the host has there is what the pod asks for, as on stock.
func isHostFile(subPath, target string) bool {
	fd, err := doSafeOpen(filepath.Join(hostRoot, subPath), hostRoot)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	same, err := compareFile(fd, target)
	return err == nil && same
}

// triggerAutomount makes the kernel mount what is to be mounted on demand at name in the
// directory of dirFD. Else the directory below is opened with O_PATH, and mount(2) by fd
// binds that, where mount(8) by path gets the mount (kubernetes#110818). O_DIRECTORY is what
// makes an open with O_PATH mount; it fails for files and symlinks, for which there is
// nothing to do. The gate does not matter: subpath-rollback compares with the opened file.
func triggerAutomount(dirFD int, name string) {
	if fd, err := unix.Openat(dirFD, name, openFDFlags|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
	}
}

// isSameFile says whether path, its last part not followed, is the file of fd. It says
// true if that cannot be told.
func isSameFile(fd int, path string) bool {
	same, err := compareFile(fd, path)
	return same || err != nil && err != unix.ENOENT && err != unix.ENOTDIR
}

// compareFile says whether path, its last part not followed as the file that was opened is no
// symlink, is the file of fd.
func compareFile(fd int, path string) (bool, error) {
	var opened, named unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return false, err
	}
	if err := unix.Lstat(path, &named); err != nil {
		return false, err
	}
	return opened.Dev == named.Dev && (opened.Ino == named.Ino || isFUSE(fd)), nil
}

// isFUSE says whether a file is of a FUSE file system. There st_ino is what the server says, and
// it may say another number for the same file each time.
func isFUSE(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == 0x65735546 // FUSE_SUPER_MAGIC
}
