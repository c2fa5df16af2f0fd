// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
)

// Mutant is a change of ours that `make dropin` has to catch. It is made in a copy of
// one file of the tree: Old, which is there once, is replaced by New.
type Mutant struct {
	Says           string
	File, Old, New string
	// Catches are the differences that show it, whatever their values.
	Catches []Difference
}

// MutantDir has the kubelet with all Mutants, below the root.
const MutantDir = "_output/dropin/mutant"

// MutantName is that of the mutants' flag, user agent, and folder below the kubelet's root.
const MutantName = "holdfast-mutant"

// Mutants are changes of the kubelet. They do not touch each other, so that one
// binary has all of them.
var Mutants = []Mutant{
	{"adds a hidden flag", "cmd/kubelet/app/options/options.go",
		`fs.BoolVar(&c.FailSwapOn, "fail-swap-on",`,
		`fs.Bool("` + MutantName + `", false, "")` + "\n\tfs.MarkHidden(\"" + MutantName + "\")\n\t" + `fs.BoolVar(&c.FailSwapOn, "fail-swap-on",`,
		[]Difference{{Kind: "flag", Name: "--" + MutantName, How: Added}}},
	{"renames a metric", "pkg/kubelet/metrics/metrics.go",
		`"running_pod_count"`, `"running_pods_count"`,
		[]Difference{{Kind: "metric", Name: "kubelet_running_pod_count", How: Missing}, {Kind: "metric", Name: "kubelet_running_pods_count", How: Added}}},
	{"sends one more GET with each status of the node", "pkg/kubelet/kubelet_node_status.go",
		`node, err := kl.heartbeatClient.Nodes().Get(string(kl.nodeName), opts)`,
		`kl.heartbeatClient.Nodes().Get(string(kl.nodeName), opts)` + "\n\t" + `node, err := kl.heartbeatClient.Nodes().Get(string(kl.nodeName), opts)`,
		[]Difference{{Kind: "request", Name: "GET /api/v1/nodes/node1*", How: Counts}}},
	{"writes a file", "pkg/kubelet/kubelet.go",
		`if err := kl.mounter.MakeRShared(kl.getRootDir()); err != nil {`,
		`os.Mkdir(path.Join(kl.getRootDir(), "` + MutantName + `"), 0750)` + "\n\t" + `if err := kl.mounter.MakeRShared(kl.getRootDir()); err != nil {`,
		[]Difference{{Kind: "file", Name: "/var/lib/kubelet/" + MutantName, How: Added}}},
	{"adds a line to the log", "pkg/kubelet/kubelet.go",
		`glog.Info("Starting kubelet main sync loop.")`,
		`glog.Info("Starting kubelet main sync loop.")` + "\n\t" + `glog.Info("` + MutantName + ` says so")`,
		[]Difference{{Kind: "log", Name: "I kubelet.go: " + MutantName + " says so", How: Added}}},
	{"asks docker for its version with each inspection of a container", "pkg/kubelet/dockershim/libdocker/kube_docker_client.go",
		`func (d *kubeDockerClient) InspectContainer(id string) (*dockertypes.ContainerJSON, error) {`,
		`func (d *kubeDockerClient) InspectContainer(id string) (*dockertypes.ContainerJSON, error) {` + "\n\td.Version()",
		[]Difference{{Kind: "docker", Name: "GET */version*", How: Counts}}},
	{"gives pods without requests another share of the processor", "pkg/kubelet/cm/qos_container_manager_linux.go",
		`bestEffortCPUShares := uint64(MinShares)`,
		`bestEffortCPUShares := uint64(MinShares) + 1`,
		[]Difference{{Kind: "cgroup", Name: "*kubepods/besteffort cpu.shares", How: Changed}}},
	{"accepts TLS 1.0", "cmd/kubelet/app/server.go",
		`MinVersion: tls.VersionTLS12,`,
		`MinVersion: tls.VersionTLS10,`,
		[]Difference{{Kind: "tls", Name: "accepts TLS 1.0", How: Added}}},
	{"sends one more field with the status of the node", "pkg/kubelet/kubelet_node_status.go",
		`func (kl *Kubelet) setNodeStatus(node *v1.Node) {`,
		`func (kl *Kubelet) setNodeStatus(node *v1.Node) {` + "\n\tnode.Status.Phase = v1.NodePhase(time.Now().String())",
		[]Difference{{Kind: "body", Name: "PATCH /api/v1/nodes/node1/status .status.phase", How: Added}}},
	{"has another user agent for events", "cmd/kubelet/app/server.go",
		`eventClientConfig.QPS = float32(s.EventRecordQPS)`,
		`eventClientConfig.QPS = float32(s.EventRecordQPS)` + "\n\t\t\teventClientConfig.UserAgent = \"" + MutantName + "\"",
		[]Difference{{Kind: "agent", Name: MutantName, How: Added}}},
}

// Mutate makes the mutants' changes in the files that get returns.
func Mutate(mutants []Mutant, get func(file string) ([]byte, error)) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, m := range mutants {
		text, ok := out[m.File]
		if !ok {
			var err error
			if text, err = get(m.File); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(string(text), m.Old); n != 1 {
			return nil, exit.Preconditionf("the mutant that %s: %s has its place %d times, not once: correct tools/build/dropin/mutant.go", m.Says, m.File, n)
		}
		out[m.File] = []byte(strings.Replace(string(text), m.Old, m.New, 1))
	}
	return out, nil
}

// Uncaught are the mutants, of those that these kinds can show, that are not among the
// differences.
func Uncaught(mutants []Mutant, kinds []string, unknown []Difference) []string {
	var out []string
	for _, m := range mutants {
		for _, c := range m.Catches {
			if slices.Contains(kinds, c.Kind) && !slices.ContainsFunc(unknown, func(d Difference) bool {
				return d.Kind == c.Kind && d.How == c.How && d.Component == Kubelet && matches(c.Name, d.Name)
			}) {
				out = append(out, fmt.Sprintf("%s: no %s %q %s", m.Says, c.Kind, c.Name, c.How))
			}
		}
	}
	return out
}
