// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"sort"
	"strings"

	"holdfast/tools/build/base"
)

// Program is a binary with what the lab must know about it.
type Program struct {
	Path string
	// Base is the release, like "v1.9.11"; component flags depend on it.
	Base string
	// Variant is the build.
	Variant base.Variant
	// Gates are set by --feature-gates; false for the lab's own gates in the
	// variant ours-gate-off.
	Gates map[string]bool
}

// WithGates returns p with further feature gates.
func (p Program) WithGates(g map[string]bool) Program {
	m := map[string]bool{}
	for _, from := range []map[string]bool{p.Gates, g} {
		for k, v := range from {
			m[k] = v
		}
	}
	p.Gates = m
	return p
}

// GateArgs is the --feature-gates flag for p, or nothing.
func (p Program) GateArgs() []string {
	if len(p.Gates) == 0 {
		return nil
	}
	var gs []string
	for k, v := range p.Gates {
		gs = append(gs, fmt.Sprintf("%s=%t", k, v))
	}
	sort.Strings(gs)
	return []string{"--feature-gates=" + strings.Join(gs, ",")}
}

// NodeController is the name of the controller of nodes' health, for --controllers; it lost the
// other half of its work in 1.10.
func (p Program) NodeController() string {
	if p.Minor() < 10 {
		return "node"
	}
	return "nodelifecycle"
}

// Minor is 9 for v1.9.11; 0 if Base is malformed.
func (p Program) Minor() int { return base.Minor(p.Base) }
