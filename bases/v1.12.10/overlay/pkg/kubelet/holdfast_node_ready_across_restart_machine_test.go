// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import cadvisorapi "github.com/google/cadvisor/info/v1"

// fakeMachine answers what a node status says of the machine, and of the runtime as the test has
// set it: the functions that make a status keep the runtime's state of the time they were made.
func fakeMachine(tk *TestKubelet) {
	tk.kubelet.setNodeStatusFuncs = tk.kubelet.defaultNodeStatusFuncs()
	tk.kubelet.machineInfo = &cadvisorapi.MachineInfo{NumCores: 1, MemoryCapacity: 1e9}
}
