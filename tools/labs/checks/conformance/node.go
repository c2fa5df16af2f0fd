// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/registry"
)

// The node suite, test/e2e_node, runs on the node itself and knows one kubelet. Upstream
// has it start etcd, an API server and the kubelet; here they run already.

func nodeLab() labkit.Lab {
	needs := labkit.KubeletNeeds(base, labkit.StockBinary(base, "ginkgo"), labkit.StockBinary(base, nodeSuite.binary))
	for _, p := range programs {
		needs = append(needs, labkit.StockBinary(base, p.binary))
	}
	return labkit.Lab{
		Name: "conformance-node", Folder: "checks/conformance",
		Summary: "the conformance specs of upstream's node suite pass on one kubelet (PROFILE=short: the specs that only the node suite has)",
		Steps:   nodeSteps,
		Oracle: labkit.Oracle{Text: []string{"each spec that the suite plans has run and passed, in the first run or when run again alone; each spec that skips itself has its reason in node-specs.json; " +
			"the planned specs have the number and the sum in node-specs.json"}, Judge: nodeSuite.judge},
		Needs: needs, Packages: packages, OnRequest: true,
		Timeout: func(p labkit.Profile) time.Duration { return labkit.Pick(p, 45*time.Minute, 90*time.Minute) },
	}
}

// apiPort is where the suite looks for the API server, without TLS, on the node's own
// loopback (test/e2e_node/util.go:228).
const apiPort = "8080"

// The user of the private repository is in the suite (runtime_conformance_test.go:221):
// a key of Google's for this account.
const (
	privateImage   = "authenticated-image-pulling/alpine"
	privateUser    = "_json_key"
	privateAccount = "image-pulling@authenticated-image-pulling.iam.gserviceaccount.com"
)

func nodeSteps(e *labkit.Env) []labkit.Step {
	s := &lab{e: e, images: registry.New(), suite: nodeSuite}
	which := labkit.Pick(e.Profile, "the specs that only the node suite has (node-specs.json)", "all")
	return append([]labkit.Step{
		{Text: "build the images that the specs run, from upstream's test programs and Debian's programs, and serve them from a registry with a private repository", Do: s.nodeRegistry},
		{Text: "start etcd, kube-apiserver with its port without TLS, the controller manager and one node with the kubelet", Do: s.startNode},
		{Text: "lead port " + apiPort + " of the node's loopback to that port, and let names that do not exist here resolve to addresses where nothing listens", Do: s.nodeNetwork},
		{Text: "list the suite's conformance specs in a dry run on the node: " + which, Do: s.plan},
		{Text: fmt.Sprintf("run them on the node, %d at a time", parallel), Do: s.parallel},
	}, s.lastSteps()...)
}

func (s *lab) nodeRegistry(ctx context.Context) error {
	s.images.Private(privateImage, func(user, password string) bool {
		var key struct {
			Account string `json:"client_email"`
		}
		return user == privateUser && json.Unmarshal([]byte(password), &key) == nil && key.Account == privateAccount
	})
	return s.registry(ctx)
}

// startNode starts what the suite would start itself, with the kubelet's flags of
// test/e2e_node/conformance/run_test.sh that matter to a spec.
func (s *lab) startNode(ctx context.Context) (err error) {
	s.c, err = s.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: s.e.Stock(base, "kube-apiserver"),
			ExtraArgs: []string{"--insecure-bind-address=" + machine.IP, "--insecure-port=" + apiPort}},
		ControllerManager: &kube.ControllerManagerConfig{Program: s.e.Stock(base, "kube-controller-manager")},
		Nodes: []node.Config{{Name: "node1", Kubelet: s.e.UnderTest(base, "kubelet"), DockerArgs: registry.DockerArgs(machine.IP, imageHosts...),
			KubeletArgs: []string{"--file-check-frequency=10s", "--volume-stats-agg-period=10s", "--serialize-image-pulls=false"}}},
	})
	if err == nil {
		s.in = s.c.Nodes[0]
	}
	return err
}

// absentHosts are names that the suite uses and that no computer of the lab has: a
// manifest that it fetches before anything else (test/e2e_node/image_list.go:59), and
// the registry that does not exist. Where nothing listens, the answer comes at once.
var absentHosts = []string{"raw.githubusercontent.com", "invalid.com"}

func (s *lab) nodeNetwork(ctx context.Context) error {
	n := s.c.Nodes[0]
	if err := n.Forward("127.0.0.1:"+apiPort, machine.IP+":"+apiPort); err != nil {
		return err
	}
	hosts := registry.Hosts(machine.IP, imageHosts...) + `\n` + registry.Hosts("127.0.0.1", absentHosts...)
	if err := n.Run(ctx, "sh", "-c", `printf '`+hosts+`\n' >>/etc/hosts`); err != nil {
		return err
	}
	// The suite looks at the computer first; its own table knows kernels up to 4.
	b, err := json.Marshal(map[string]any{"os": "Linux", "kernelSpec": map[string]any{"versions": []string{".*"}}})
	if err != nil {
		return err
	}
	return os.WriteFile(s.systemSpec(), b, 0o644)
}

func (s *lab) systemSpec() string { return s.e.Path("system-spec.json") }

func (s *lab) nodeFlags() []string {
	return []string{"--start-services=false", "--stop-services=false", "--prepull-images=false", "--host=http://127.0.0.1:" + apiPort,
		"--node-name=" + s.c.Nodes[0].Name, "--system-spec-file=" + s.systemSpec()}
}
