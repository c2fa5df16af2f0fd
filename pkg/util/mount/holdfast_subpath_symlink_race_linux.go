// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"

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
		Help: "SubPaths for which mount(8) mounted another file than the kubelet had opened, with the feature gate SubpathMountByFD off.",
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
		// The flags, as Mount does it. The kernel does not look at the source again.
		_, remountOptions := isBind(options)
		err = m.doMount("", defaultMountCommand, source, target, "", remountOptions)
	case *NsenterMounter:
		// The mount is made by a program in the host's mount namespace.
		cmd, args := m.makeNsenterArgs(source, target, "", []string{"bind"})
		if err = m.runMount(cmd, withoutCanonicalize(args)); err != nil {
			return err
		}
		_, remountOptions := isBind(options)
		err = m.doNsenterMount(source, target, "", remountOptions)
	default:
		return mounter.Mount(source, target, "" /*fstype*/, options)
	}
	if err == nil && !isSameFile(fd, subPath) {
		subPathsExchanged.Inc()
		glog.Warningf("SubPath %s was exchanged for another file while it was mounted at %s: the file that was checked is mounted (feature gate %s)",
			subPath, target, features.SubpathMountByFD)
	}
	return err
}

// withoutCanonicalize makes the mount command whose arguments end with the source and the
// target leave the source as it is.
func withoutCanonicalize(args []string) []string {
	n := len(args) - 2
	return append(append(append([]string{}, args[:n]...), "--no-canonicalize"), args[n:]...)
}

// runMount runs the mount command in the host's mount namespace.
func (n *NsenterMounter) runMount(cmd string, args []string) error {
	output, err := n.ne.Exec(cmd, args).CombinedOutput()
	if len(output) != 0 {
		glog.V(5).Infof("Output of %s %v: %v", cmd, args, string(output))
	}
	return err
}

// isSameFile says whether path, its last part not followed, is the file of fd. It says
// true if that cannot be told.
func isSameFile(fd int, path string) bool {
	var opened, named unix.Stat_t
	if unix.Fstat(fd, &opened) != nil {
		return true
	}
	if err := unix.Lstat(path, &named); err != nil {
		return err != unix.ENOENT && err != unix.ENOTDIR
	}
	return opened.Dev == named.Dev && opened.Ino == named.Ino
}
