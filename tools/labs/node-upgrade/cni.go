// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"context"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:     "node-upgrade-cni",
		Folder:   "node-upgrade",
		LongOnly: true,
		Summary:  "node-upgrade on nodes whose pods have their networks from CNI plug-ins (bridge, host-local, portmap)",
		Packages: []string{node.CNIPackage},
		Plan: planAfter(
			"as node-upgrade, with --network-plugin=cni on both nodes:",
		),
		Needs: needs, Timeout: timeout,
		Run: func(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
			return rehearse(ctx, e, node.Config{CNI: true})
		},
	})
}
