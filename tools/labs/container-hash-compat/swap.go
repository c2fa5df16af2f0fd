// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhashcompat

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

// byProgram: kubectl-holdfast, which knows what the swaps do, also makes them, if they are but one to
// Holdfast and one back. What else there is, is the lab's to swap.
func (s setup) byProgram(v labkit.Variant, p labkit.Profile) bool {
	return s.forecasts && v == labkit.Ours && p == labkit.Short
}

// replace replaces the kubelet, and changes an image while none runs.
func (l *lab) replace(ctx context.Context, program kube.Program) (*kubeletlab.Swapped, error) {
	l.changes++
	image := node.WebImage(map[bool]string{true: "v2", false: "v1"}[l.changes%2 == 1])
	change := func(ctx context.Context) error {
		_, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, changed, fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":%q}]}}`, image))
		return err
	}
	if l.swaps != nil {
		return l.swaps.Swap(ctx, program, 20*time.Second, change)
	}
	if err := l.node.StopKubelet(); err != nil {
		return nil, err
	}
	if err := change(ctx); err != nil {
		return nil, err
	}
	return nil, l.node.StartKubelet(ctx, program)
}
