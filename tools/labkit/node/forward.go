// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"holdfast/tools/labkit/machine"
)

// Forward passes connections to an address inside the node, like "127.0.0.1:8080",
// on to one that the lab's code reaches.
func (n *Node) Forward(addr, to string) error {
	l, err := machine.ListenIn(n.holder.Pid, "tcp", addr)
	if err != nil {
		return fmt.Errorf("node %s: forward %s: %w", n.Name, addr, err)
	}
	go machine.Forward(l, "tcp", to)
	n.in.OnStop(n.Name+" forward "+addr, func(context.Context) error { return l.Close() })
	return nil
}
