// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"
)

var localnetRulesAdded = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_localnet_firewall_rules_added_total",
	Help: "Times the rule against packets to the node's loopback addresses was missing and added. More than once per boot of the node: something takes it away.",
})

func init() {
	prometheus.MustRegister(localnetRulesAdded)
}

// localnetRule drops what comes to a loopback address from elsewhere, unless it
// belongs to a connection that the node opened or was sent on by a rule of the node
// (a hostPort or NodePort on loopback). It is upstream's of 1.19 and its patch
// releases (#92040) to the letter, so that a newer kubelet finds its own.
var localnetRule = []string{
	"-m", "comment", "--comment", "block incoming localnet connections",
	"--dst", "127.0.0.0/8",
	"!", "--src", "127.0.0.0/8",
	"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT",
	"-j", "DROP",
}

// syncLocalnetFirewall ensures the rule, or with the gate off its absence, in
// KUBE-FIREWALL, which INPUT and OUTPUT jump to. It is called again and again; an
// error is logged and does not keep the kubelet from its other rules.
func (kl *Kubelet) syncLocalnetFirewall() {
	if kl.iptClient.IsIpv6() { // ::1 is not routed
		return
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.LocalnetFirewall) {
		if err := kl.iptClient.DeleteRule(utiliptables.TableFilter, KubeFirewallChain, localnetRule...); err != nil {
			glog.Errorf("Failed to delete the rule against incoming localnet connections from %v chain %v: %v", utiliptables.TableFilter, KubeFirewallChain, err)
		}
		return
	}
	existed, err := kl.iptClient.EnsureRule(utiliptables.Append, utiliptables.TableFilter, KubeFirewallChain, localnetRule...)
	if err != nil {
		glog.Errorf("Failed to ensure rule to drop incoming localnet connections in %v chain %v: %v", utiliptables.TableFilter, KubeFirewallChain, err)
		return
	}
	if !existed {
		localnetRulesAdded.Inc()
		glog.Infof("Connections from other machines and from pods to loopback addresses of this node are dropped (feature gate %s)", features.LocalnetFirewall)
	}
}
