// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// fuseSuperMagic is the type of FUSE file systems in statfs(2).
const fuseSuperMagic = 0x65735546

// checkSubPathBind returns an error if target, where the file of fd was to be
// bind-mounted, is another file. mount(8) resolves the link /proc/<pid>/fd/<fd>
// to a path and mounts that, so that who exchanges a directory of the path for a
// symlink at the right time gets something outside of the volume mounted
// (CVE-2021-25741).
//
// Stock makes one bind for all instances of a container. With the gate
// SubpathUnbindAfterStart each start makes one, which would be one more chance
// each time; so the gate has this check.
func checkSubPathBind(mounter Interface, fd int, target string) error {
	if _, ok := mounter.(*Mounter); !ok || !utilfeature.DefaultFeatureGate.Enabled(features.SubpathUnbindAfterStart) {
		return nil
	}
	var want, got unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return fmt.Errorf("error checking the subpath: %v", err)
	}
	if err := unix.Lstat(target, &got); err != nil {
		return fmt.Errorf("error checking %s: %v", target, err)
	}
	var fs unix.Statfs_t
	if want.Dev == got.Dev && unix.Fstatfs(fd, &fs) == nil && fs.Type == fuseSuperMagic {
		// st_ino is what the server says, which may be another number for the same file each
		// time. Another file system is refused as everywhere.
		return nil
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return fmt.Errorf("error mounting %s: the path was changed meanwhile, another file is mounted", target)
	}
	return nil
}
