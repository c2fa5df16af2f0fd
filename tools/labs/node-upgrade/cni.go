// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
)

func cniLab() labkit.Lab {
	return labkit.Lab{
		Name:     "node-upgrade-cni",
		Folder:   "node-upgrade",
		Summary:  "node-upgrade on nodes whose pod networks come from CNI plug-ins (bridge, host-local, portmap)",
		Packages: []string{node.CNIPackage},
		Needs:    needs, Timeout: timeout,
		Steps: func(e *labkit.Env) []labkit.Step {
			return rehearsal(e, node.Config{CNI: true}, ", each with --network-plugin=cni")
		},
		Oracle: oracle,
	}
}
