// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"net"

	"github.com/golang/glog"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/runtime/v1alpha2"
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

// recordHostIPs notes the addresses of the host ports in the data of a sandbox's checkpoint, in
// the order of its port mappings, and nothing if all ports are for all addresses.
func recordHostIPs(data *CheckpointData, config *runtimeapi.PodSandboxConfig) {
	some := false
	var ips []string
	for _, m := range config.GetPortMappings() {
		ip := checkpointHostIP(m.HostIp)
		some = some || ip != ""
		ips = append(ips, ip)
	}
	if some {
		data.HostIPs = ips
	}
}

// hostIPOf returns the address that the network plug-in is told for the i-th port mapping of a
// checkpoint. The checksum does not cover it, so it is checked as if the pod said it.
func hostIPOf(c DockershimCheckpoint, i int) string {
	sandbox, ok := c.(*PodSandboxCheckpoint)
	if !ok || sandbox.Data == nil || len(sandbox.Data.HostIPs) != len(sandbox.Data.PortMappings) {
		return ""
	}
	return checkpointHostIP(sandbox.Data.HostIPs[i])
}

// withoutHostIPs returns the value whose dump is the checksum of a checkpoint in 1.11 and 1.12: the
// type below is theirs, name for name, and has no HostIPs. So these releases accept a file with that
// key and ignore it.
func withoutHostIPs(data CheckpointData) interface{} {
	type CheckpointData struct {
		PortMappings []*PortMapping
		HostNetwork  bool
	}
	return CheckpointData{PortMappings: data.PortMappings, HostNetwork: data.HostNetwork}
}
