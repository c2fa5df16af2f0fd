// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"context"
	"time"

	"holdfast/tools/labkit"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:     "node-upgrade-cni",
		Folder:   "node-upgrade",
		LongOnly: true,
		Summary:  "node-upgrade on nodes whose pods have their networks from CNI plug-ins (bridge, host-local, portmap)",
		Packages: []string{labkit.CNIPackage},
		Plan: func(p labkit.Profile) []string {
			l, err := labkit.Find("node-upgrade")
			if err != nil {
				panic(err) // it is registered beside this one
			}
			return append([]string{"as node-upgrade, with --network-plugin=cni on both nodes:"}, l.Plan(p)...)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(old, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Timeout: func(p labkit.Profile) time.Duration {
			if p == labkit.Long {
				return 40 * time.Minute
			}
			return 10 * time.Minute
		},
		Run: func(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
			return rehearse(ctx, e, labkit.NodeConfig{CNI: true})
		},
	})
}
