// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdattach

import (
	"context"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/rbdlab"
)

// death moves a pod off a node of 1.7 whose power is cut.
func (l *lab) death(ctx context.Context) error {
	n := l.r.Node("node1")
	if err := n.SwapKubelet(ctx, l.e.Stock(old, "kubelet")); err != nil {
		return err
	}
	if err := l.r.WaitNodeReady(ctx, "node1", 2*time.Minute); err != nil {
		return err
	}
	if err := l.run(ctx, rbdlab.Pod{Name: "dies", Node: "node1", Image: "death"}); err != nil {
		return err
	}
	if err := n.Write(ctx, "death", "written", "by 1.7"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "death", atStart); err != nil {
		return err
	}
	if err := n.PowerOff(ctx); err != nil {
		return err
	}
	if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, "dies"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "death", atDeath); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "lives", Node: "node2", Image: "death"}); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "death", wanted, deathBound, func(s rbdlab.State) bool { return s.Runs("lives") }); err != nil {
		return err
	}
	// What it leaves is looked at when the node is back, with the kubelet under test.
	if err := n.StartDocker(ctx); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx, rbdlab.UnderTest(l.e)); err != nil {
		return err
	}
	if err := l.r.WaitNodeReady(ctx, "node1", 2*time.Minute); err != nil {
		return err
	}
	if err := l.r.Node("node2").Write(ctx, "death", "later", "by the next node"); err != nil {
		return err
	}
	return l.end(ctx, "death", []string{"written", "later"}, "lives")
}

// death19 moves a pod off a node of 1.9 whose power is cut, and which has no lock. It is the last
// row of node3. The volume is in the pod itself: a claim's is held back by the controller manager,
// for six minutes, with every build.
func (l *lab) death19(ctx context.Context) error {
	n := l.r.Node("node3")
	if err := l.run(ctx, rbdlab.Pod{Name: "dies19", Node: "node3", Image: "death19"}); err != nil {
		return err
	}
	if err := n.Write(ctx, "death19", "written", "by the dead node"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "death19", atStart); err != nil {
		return err
	}
	if err := n.PowerOff(ctx); err != nil {
		return err
	}
	if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, "dies19"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "death19", atDeath); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "lives19", Node: "node2", Image: "death19"}); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "death19", wanted, deathBound, func(s rbdlab.State) bool { return s.Runs("lives19") }); err != nil {
		return err
	}
	if err := n.StartDocker(ctx); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx, rbdlab.UnderTest(l.e)); err != nil {
		return err
	}
	if err := l.r.WaitNodeReady(ctx, "node3", 2*time.Minute); err != nil {
		return err
	}
	if err := l.r.Node("node2").Write(ctx, "death19", "later", "by the next node"); err != nil {
		return err
	}
	return l.end(ctx, "death19", []string{"written", "later"}, "lives19")
}
