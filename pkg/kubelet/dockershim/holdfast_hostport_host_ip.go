// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"net"

	"github.com/golang/glog"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/v1alpha1/runtime"
)

// checkpointHostIP returns what the checkpoint of a sandbox records as the address of a host
// port. hostIP is the pod's, which the API server does not check. It returns "", as in
// stock, for what is no address, and for those that mean all addresses: a portmap plug-in
// may take 0.0.0.0 for one address.
func checkpointHostIP(hostIP string) string {
	if hostIP == "" || !utilfeature.DefaultFeatureGate.Enabled(features.HostPortHostIP) {
		return ""
	}
	ip := net.ParseIP(hostIP)
	if ip == nil {
		glog.Warningf("A host port is opened on all addresses of the node: its hostIP, of %d bytes, is no IP address", len(hostIP))
		return ""
	}
	if ip.IsUnspecified() {
		return ""
	}
	return ip.String()
}

// recordHostIPs notes the addresses of the host ports in the checkpoint of a sandbox, in the
// order of its port mappings, and nothing if all ports are for all addresses.
func recordHostIPs(c *PodSandboxCheckpoint, config *runtimeapi.PodSandboxConfig) {
	some := false
	var ips []string
	for _, m := range config.GetPortMappings() {
		ip := checkpointHostIP(m.HostIp)
		some = some || ip != ""
		ips = append(ips, ip)
	}
	if some {
		c.Data.HostIPs = ips
	}
}

// hostIP returns the address that the network plug-in is told for the i-th port mapping. The
// checksum does not cover it, so it is checked as if the pod said it.
func (d *CheckpointData) hostIP(i int) string {
	if len(d.HostIPs) != len(d.PortMappings) {
		return ""
	}
	return checkpointHostIP(d.HostIPs[i])
}

// withoutHostIPs returns the value whose dump is the checksum of a checkpoint in 1.8 and 1.9:
// the types below are theirs, name for name, and have no HostIPs. So these releases, and
// with checkpoint-compat 1.6 and 1.7, accept a file with that key and ignore it.
func withoutHostIPs(c PodSandboxCheckpoint) interface{} {
	type CheckpointData struct {
		PortMappings []*PortMapping
		HostNetwork  bool
	}
	type PodSandboxCheckpoint struct {
		Version   string
		Name      string
		Namespace string
		Data      *CheckpointData
		CheckSum  uint64
	}
	old := PodSandboxCheckpoint{Version: c.Version, Name: c.Name, Namespace: c.Namespace, CheckSum: c.CheckSum}
	if c.Data != nil {
		old.Data = &CheckpointData{PortMappings: c.Data.PortMappings, HostNetwork: c.Data.HostNetwork}
	}
	return old
}
