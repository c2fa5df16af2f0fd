// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"context"
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

func systemdLab() labkit.Lab {
	return labkit.Lab{
		Name:     "node-upgrade-systemd",
		Folder:   "node-upgrade",
		Summary:  "node-upgrade on nodes where systemd is process 1 and dockerd and kubelet have the cgroup driver systemd",
		Packages: []string{node.SystemdPackage},
		Needs:    needs, Timeout: timeout,
		Steps: func(e *labkit.Env) []labkit.Step {
			return rehearsal(e, node.Config{CgroupDriver: node.Systemd}, ", each with systemd as process 1, --cgroup-driver=systemd and native.cgroupdriver=systemd;"+
				" before the first and after the last swap each container is in a scope of systemd, in the slice of its pod")
		},
		Oracle: oracle,
	}
}

// checkScopes is an error unless systemd keeps every container of n's pods in a
// scope of its pod's slice, or, where systemd is false, none.
func checkScopes(ctx context.Context, n *node.Node, systemd bool) error {
	snap, err := kubeletlab.Take(ctx, n)
	if err != nil {
		return err
	}
	if len(snap) == 0 {
		return fmt.Errorf("no container runs on %s", n.Name)
	}
	scopes := n.SystemdScopes()
	for key, c := range snap {
		slice, found := scopes[c.ID]
		switch {
		case !systemd && found:
			return fmt.Errorf("container %s of %s is in a scope of systemd, in %s", key, n.Name, slice)
		case systemd && !strings.HasPrefix(slice, "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"):
			return fmt.Errorf("container %s of %s is not in the scope of systemd and the slice of its pod, but in %q", key, n.Name, slice)
		}
	}
	return nil
}
