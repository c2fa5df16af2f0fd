// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
)

// podNetwork has every node's PodCIDR.
const podNetwork = "10.91.0.0/16"

// StartProxy starts a kube-proxy on the node, without which no pod finds the API server at the
// address of its Service.
func (n *Node) StartProxy(ctx context.Context, p kube.Program) (*process.Proc, error) {
	if n.api == nil {
		return nil, errors.New("node " + n.Name + " has no API server")
	}
	pki, err := n.in.GetPKI()
	if err != nil {
		return nil, err
	}
	conf, err := pki.Kubeconfig("kube-proxy", n.api.URL, "system:kube-proxy")
	if err != nil {
		return nil, err
	}
	return n.in.Start(ctx, process.Process{Name: n.Name + "-kube-proxy", Component: sweep.KubeProxy, Path: p.Path, In: n,
		Args: append([]string{"--kubeconfig=" + conf, "--hostname-override=" + n.Name, "--proxy-mode=iptables", "--cluster-cidr=" + podNetwork,
			// Settings of the whole kernel, which a network namespace cannot change.
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
			"--healthz-bind-address=0.0.0.0", "--logtostderr=true", "--v=2"}, p.GateArgs()...),
		HealthURL: "http://" + n.IP + ":10256/healthz"})
}
