// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/sweep"
)

// Env is one variant's run: its chance, its binaries and, by what it embeds, its
// directory, processes, journal, machine, control plane and nodes.
type Env struct {
	*node.Starter
	Lab     *Lab
	Variant Variant
	Profile Profile
	Seed    uint64
	// Rand is seeded by Seed, the same in every variant.
	Rand *rand.Rand
	// Sweep kills components meanwhile; nil in a run without.
	Sweep *sweep.Sweep
	// Bins finds the programs.
	Bins *Binaries
}

// NewRand is the chance of a run of that lab.
func NewRand(lab string, seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(lab))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// UnderTest is name of base in the build of the variant that runs, with the
// lab's gates off if that is the variant.
func (e *Env) UnderTest(base, name string) kube.Program {
	p := e.Program(BinaryUnderTest(base, name))
	if e.Variant == GateOff {
		off := map[string]bool{}
		for _, g := range e.Lab.gates {
			off[g] = false
		}
		p = p.WithGates(off)
	}
	return p
}

// Stock is name of base as upstream has it.
func (e *Env) Stock(base, name string) kube.Program { return e.Program(StockBinary(base, name)) }

// StartStockCluster starts etcd, and kube-apiserver and kube-controller-manager of base as
// upstream has them, and nodes with the kubelets that they name.
func (e *Env) StartStockCluster(ctx context.Context, base string, nodes ...node.Config) (*node.Cluster, error) {
	return e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		Nodes:             nodes,
	})
}

// StartStockAPIServer starts etcd, and kube-apiserver of base as upstream has it.
func (e *Env) StartStockAPIServer(ctx context.Context, base string) (*node.Cluster, error) {
	return e.StartCluster(ctx, node.ClusterConfig{APIServer: &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")}})
}

// StartProxied is StartStockAPIServer with a proxy before kube-apiserver (see kube.Proxy.Before).
func (e *Env) StartProxied(ctx context.Context, base string) (*node.Cluster, *kube.Proxy, error) {
	c, err := e.StartStockAPIServer(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.StartProxy(c.APIServer, "proxy", e.Seed)
	return c, p, err
}

// Ours is name of base from our build, whatever variant runs.
func (e *Env) Ours(base, name string) kube.Program { return e.Program(Binary{base, Ours, name}) }

// Holdfast is kubectl-holdfast, the program that operators run.
func (e *Env) Holdfast() (string, error) {
	file := filepath.Join(e.Root, "_output", "bin", "kubectl-holdfast")
	if _, err := os.Stat(file); err != nil {
		return "", exit.Preconditionf("%v: run make kubectl-holdfast", err)
	}
	return file, nil
}

// Program is any binary, also one of a lab-only build of a base.
func (e *Env) Program(b Binary) kube.Program {
	b = b.For(e.Variant)
	return kube.Program{Path: e.Bins.Path(b), Base: b.Base, Variant: b.Variant}
}
