// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CNIPackage has the plug-ins that a node with Config.CNI runs, in cniBinDir.
const (
	CNIPackage = "containernetworking-plugins"
	cniBinDir  = "/usr/lib/cni"
)

// dockerBridgeName is what dockerd calls its own bridge.
const dockerBridgeName = "docker0"

// dockerBridge is the address of docker's own bridge: the gateway of the pods, or
// with CNI one that no pod uses.
func (n *Node) dockerBridge() string {
	if n.cfg.CNI {
		return "172.30.99.1/24"
	}
	return strings.TrimSuffix(n.PodCIDR, "0/24") + "1/24"
}

func (n *Node) cniConfDir() string { return filepath.Join(n.Dir, "cni") }

// writeCNI writes a network with addresses from PodCIDR, as a kubeadm cluster of
// 1.7 to 1.9 with a plain bridge plug-in has it. Release 0.3.1 of the
// specification is the newest that kubelets of these releases know.
func (n *Node) writeCNI() error {
	if err := os.MkdirAll(n.cniConfDir(), 0o755); err != nil {
		return err
	}
	conf := fmt.Sprintf(`{
  "cniVersion": "0.3.1",
  "name": "lab",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
     "ipam": {"type": "host-local", "subnet": %q, "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": false}
  ]
}
`, n.PodCIDR)
	return os.WriteFile(filepath.Join(n.cniConfDir(), "10-lab.conflist"), []byte(conf), 0o644)
}

func (n *Node) cniArgs() []string {
	return []string{"--network-plugin=cni", "--cni-conf-dir=" + n.cniConfDir(), "--cni-bin-dir=" + cniBinDir, "--hairpin-mode=none"}
}
