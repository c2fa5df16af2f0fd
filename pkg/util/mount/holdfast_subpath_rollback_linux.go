// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

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
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return fmt.Errorf("error mounting %s: the path was changed meanwhile, another file is mounted", target)
	}
	return nil
}
