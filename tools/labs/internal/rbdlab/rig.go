// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdlab is what labs of RBD volumes share: a real Ceph cluster, nodes whose rbd maps
// by rbd-fuse (tools/cmd/rbdshim), pods with images, and looks at who holds an image.
//
//	r, err := rbdlab.Start(ctx, e, rbdlab.Config{Nodes: []rbdlab.NodeConfig{
//		{Name: "node1", Kubelet: e.Stock("v1.7.0", "kubelet"), Columns: 1},
//		{Name: "node2", Kubelet: rbdlab.UnderTest(e, "RBDLegacyLock")},
//	}})
//	err = r.Image(ctx, "data")                    // with an ext4 and a file in it
//	err = r.Create(ctx, rbdlab.Pod{Name: "web", Node: "node1", Image: "data"})
//	_, err = r.Running(ctx, "web", time.Minute)
//	err = r.Node("node1").Write(ctx, "data", "written", "by web")
//	s, err := r.Until(ctx, "data", "web is deleted", time.Minute, rbdlab.Free) // records s
//	err = r.Contents(ctx, "data", "at the end", "written")                 // records e2fsck and files
//
// A step that waits for what the oracle judges uses Until, which records what it saw last
// and is no error if it did not come. The oracle reads State and Contents, never a log.
package rbdlab

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
)

const (
	// Base is the release of the control plane and of the kubelet under test.
	Base = "v1.9.11"
	// NS is the namespace of pods and secrets.
	NS = "default"
	// AdminSecret is the Secret with the key of client.admin.
	AdminSecret = "ceph"
)

// Config is what Start starts beside Ceph, etcd and the API server.
type Config struct {
	Nodes []NodeConfig
	// ControllerManager is stock of Base by default. Its rbd is the computer's.
	ControllerManager *kube.ControllerManagerConfig
	// APIServer is stock of Base by default.
	APIServer kube.Program
	// APIServerGates are feature gates of the API server.
	APIServerGates map[string]bool
	// Scheduler is none by default: the pods name their nodes.
	Scheduler *kube.SchedulerConfig
}

// NodeConfig is a node with its own host name.
type NodeConfig struct {
	// Name is the node's in the API, and its host name, by which kubelets up to 1.8 lock.
	Name string
	// Kubelet is started when the node has its rbd; none without a Path.
	Kubelet kube.Program
	// Columns 1: rbd lock list prints one blank between its columns, as rbd up to 14.
	Columns int
	Args    []string
}

// Rig is a cluster whose pods have RBD volumes.
type Rig struct {
	*node.Cluster
	Ceph *Ceph

	e     *labkit.Env
	nodes []*Node
}

// gateFixes are the fixes without which a kubelet does not know a gate.
var gateFixes = map[string][]string{
	"RBDDetachLeftovers": {"rbd-output", "rbd-detach"},
	"RBDLegacyLock":      {"rbd-output", "rbd-attach", "rbd-legacy-lock"},
}

// UnderTest is the kubelet of the variant with these gates on, which are off by default.
// A variant that has no such gate runs without, and one that has it off leaves it off.
func UnderTest(e *labkit.Env, on ...string) kube.Program {
	p := e.UnderTest(Base, "kubelet")
	if e.Variant.Name() == string(labkit.Stock) {
		return p
	}
	gates := map[string]bool{}
	for _, g := range on {
		if _, off := p.Gates[g]; off {
			continue
		}
		if !slices.ContainsFunc(gateFixes[g], func(s string) bool { return slices.Contains(e.Variant.Minus(), s) }) {
			gates[g] = true
		}
	}
	return p.WithGates(gates)
}

// Needs are the binaries of every lab with a Rig; old names the old kubelets' releases.
func Needs(old ...string) []labkit.Binary {
	all := labkit.KubeletNeeds(Base)
	for _, b := range old {
		all = append(all, labkit.StockBinary(b, "kubelet"))
	}
	return all
}

// Start starts Ceph, the control plane, and the nodes with their kubelets, which are Ready.
func Start(ctx context.Context, e *labkit.Env, c Config) (*Rig, error) {
	r := &Rig{e: e}
	var err error
	if r.Ceph, err = startCeph(ctx, e); err != nil {
		return nil, err
	}
	e.OnStop("loop devices", func(ctx context.Context) error { return freeLoops(ctx, e.Path("rbdshim", "*")) }) // after the nodes
	if c.APIServer.Path == "" {
		c.APIServer = e.Stock(Base, "kube-apiserver")
	}
	cc := node.ClusterConfig{APIServer: &kube.APIServerConfig{Program: c.APIServer.WithGates(c.APIServerGates)}, ControllerManager: c.ControllerManager, Scheduler: c.Scheduler}
	if cc.ControllerManager == nil {
		cc.ControllerManager = &kube.ControllerManagerConfig{Program: e.Stock(Base, "kube-controller-manager")}
	}
	for _, n := range c.Nodes {
		// A kubelet that has compared a pod's containers says so at -v=3, what it does to a
		// volume at 4: for the one who reads the artefacts.
		cc.Nodes = append(cc.Nodes, node.Config{Name: n.Name, Hostname: n.Name, KubeletArgs: append([]string{"--v=4"}, n.Args...)})
	}
	if r.Cluster, err = e.StartCluster(ctx, cc); err != nil {
		return nil, err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.ID))
	for i, n := range c.Nodes {
		x := &Node{Node: r.Nodes[i], rig: r, state: e.Path("rbdshim", n.Name), columns: n.Columns,
			first: 1000*(1+int(h.Sum32()%100_000)) + 100*i}
		r.nodes = append(r.nodes, x)
		if err := x.setUp(ctx); err != nil {
			return nil, fmt.Errorf("node %s: its rbd: %w", n.Name, err)
		}
		if n.Kubelet.Path == "" {
			continue
		}
		if err := x.StartKubelet(ctx, n.Kubelet); err != nil {
			return nil, err
		}
	}
	for i, n := range c.Nodes {
		if c.Nodes[i].Kubelet.Path == "" {
			continue
		}
		if err := r.WaitNodeReady(ctx, n.Name, 2*time.Minute); err != nil {
			return nil, err
		}
	}
	return r, r.Secret(ctx, AdminSecret, r.Ceph.Key)
}

// Node is the node of that name; it panics if there is none.
func (r *Rig) Node(name string) *Node {
	for _, n := range r.nodes {
		if n.Name == name {
			return n
		}
	}
	panic("rbdlab: no node " + name)
}

// freeLoops gives back the computer's loop devices and names of devices of the nodes whose
// states are there: a node that ends with an image mapped leaves them, and no namespace
// holds them.
func freeLoops(ctx context.Context, states string) error {
	loops, err := filepath.Glob(filepath.Join(states, "devices/*/loop"))
	if err != nil {
		return err
	}
	for _, f := range loops {
		name, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "blockdev", "--setrw", string(name)).CombinedOutput(); err != nil {
			return fmt.Errorf("blockdev --setrw %s: %w: %s", name, err, out)
		}
		if out, err := exec.CommandContext(ctx, "losetup", "-d", string(name)).CombinedOutput(); err != nil {
			return fmt.Errorf("losetup -d %s: %w: %s", name, err, out)
		}
		if err := os.RemoveAll("/dev/rbd" + filepath.Base(filepath.Dir(f))); err != nil {
			return err
		}
	}
	return nil
}
