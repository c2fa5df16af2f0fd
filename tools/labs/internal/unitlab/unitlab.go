// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unitlab has a cluster whose only node's kubelet is a unit of systemd, as operators have it:
// what swaps it is kubectl-holdfast, not the lab.
package unitlab

import (
	"context"
	"path/filepath"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

// base is the control plane's release.
const base = "v1.9.11"

// Unit is a cluster of one node, node1, and the unit kubelet.service on it.
type Unit struct {
	*kubeletlab.Unit
	Cluster *node.Cluster
	// Keep is the folder for node swap, Kubeconfig an administrator's.
	Keep, Kubeconfig string
	// Holdfast is the program that operators run.
	Holdfast string
}

// Start starts the stock control plane and the node, with the flags that the runbook recommends.
func Start(ctx context.Context, e *labkit.Env, kubelet kube.Program) (*Unit, error) {
	holdfast, err := e.Holdfast()
	if err != nil {
		return nil, err
	}
	u := &Unit{Holdfast: holdfast}
	c, err := e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: kubelet, CgroupDriver: node.Systemd, Unit: kubeletlab.UnitFlags})
	if err != nil {
		return nil, err
	}
	n := c.Nodes[0]
	u.Cluster, u.Keep = c, filepath.Join(n.Dir, "holdfast")
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	if u.Kubeconfig, err = pki.Kubeconfig("admin", c.APIServer.URL, "admin", "system:masters"); err != nil {
		return nil, err
	}
	u.Unit, err = kubeletlab.StartUnit(ctx, e, n, kubelet, filepath.Join(n.Dir, "bin", "kubelet"))
	return u, err
}
