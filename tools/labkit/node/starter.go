// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path/filepath"
	"sync/atomic"

	"holdfast/tools/labkit/kube"
)

// Starter starts nodes, and clusters with them, in a machine.
type Starter struct {
	*kube.Starter
	// Root is the repository, for the programs of ours that run on nodes.
	Root string

	nodes atomic.Int32
}

// NewStarter starts in s's machine.
func NewStarter(s *kube.Starter, root string) *Starter { return &Starter{Starter: s, Root: root} }

// ToolPath is where the static program of that name is: one of tools/cmd/ that runs
// in containers, under dockerd, or is run by a lab itself.
func ToolPath(root, name string) string {
	return filepath.Join(root, "_output", "tools", "bin", name)
}
