// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predecessor is the lab predecessor: whatever happens to a node under
// ours, the kubelet that was there before takes everything over again. See
// tools/labs/predecessor/README.md.
package predecessor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// podNet is what the controller manager gives each node a /24 of.
	podNet = "10.92.0.0/16"
)

// was is the kubelet that was on the node before ours.
type was struct {
	name string
	// base is its release, "" if there was none.
	base string
	// metric is release and source as holdfast_predecessor_info has them.
	metric [2]string
}

// back is the release that the node goes back to.
func (w was) back() string {
	if w.base == "" {
		return base
	}
	return w.base
}

var (
	from17    = was{"1.7.0", "v1.7.0", [2]string{"1.7.0", "api"}}
	from18    = was{"1.8.15", "v1.8.15", [2]string{"1.8.15", "api"}}
	from19    = was{"stock 1.9.11", base, [2]string{"1.9.11", "api"}}
	fromEmpty = was{"nothing", "", [2]string{"none", "none"}}
)

// plan is which events each kind of node lives through, in a variant and
// profile. Stock and gate-off show that the lab can tell: one cell is enough.
func plan(v labkit.Variant, p labkit.Profile) map[was][]string {
	switch {
	case v == labkit.Stock:
		return map[was][]string{from17: {"swap"}}
	case v == labkit.GateOff:
		return map[was][]string{from17: {"reboot"}}
	case p == labkit.Short:
		return map[was][]string{from17: {"swap, reboot"}, from19: {"reboot"}, fromEmpty: {"reboot"}}
	}
	all := []string{"swap", "reboot", "drain", "docker restart", "gates off and on", "churn"}
	return map[was][]string{
		from17:    append(append([]string{}, all...), "API away", "no record", "stock 1.9.11 in between"),
		from18:    append(append([]string{}, all...), "API away", "no record"),
		from19:    append(append([]string{}, all...), "API away", "bad override"),
		fromEmpty: all,
	}
}

var order = []was{from17, from18, from19, fromEmpty}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "predecessor",
		Summary: "Holdfast loses the record of the previous kubelet, which then recreates containers and loses host ports after the swap back",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle:  oracle,
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary("v1.7.0", "kubelet"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		LongNeeds: []labkit.Binary{labkit.StockBinary("v1.8.15", "kubelet")},
		Packages:  []string{"containernetworking-plugins"},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 12*time.Minute, 60*time.Minute)
		},
	}}
}

type lab struct {
	e *labkit.Env
	c *node.Cluster
}

// cell is one node's way there, what happened, and back.
type cell struct {
	was   was
	event string
	// metric is how holdfast_predecessor_info has what was last there.
	metric [2]string
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	var cells []string
	for _, w := range order {
		for _, ev := range plan(e.Variant, e.Profile)[w] {
			cells = append(cells, fmt.Sprintf("%s → under test → %s → %s", w.name, ev, w.back()))
		}
	}
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11", Do: l.start},
		{Text: "run a node with kubenet for each previous kubelet, in parallel; on each node, one after the other: " + strings.Join(cells, "; ") +
			". Before each case: power off, remove containers, checkpoints, records and the Node object; start pods with and without host ports under the first kubelet; " +
			"after the event start more pods under the kubelet under test; at the end the last kubelet deletes all pods", Do: l.live},
		{Text: "check that the control plane runs", Always: true, Do: func(ctx context.Context) error { return l.c.Alive(ctx) }},
	}
}

func (l *lab) start(ctx context.Context) error {
	var err error
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			ExtraArgs: []string{"--allocate-node-cidrs=true", "--cluster-cidr=" + podNet, "--configure-cloud-routes=false"}},
	})
	return err
}

// live has each node live through its cells.
func (l *lab) live(ctx context.Context) error {
	var g errgroup.Group
	for i, w := range order {
		events := plan(l.e.Variant, l.e.Profile)[w]
		if len(events) == 0 {
			continue
		}
		n, err := l.e.StartNode(ctx, l.c.APIServer, node.Config{Name: fmt.Sprintf("node%d", i+1),
			KubeletArgs: []string{"--network-plugin=kubenet", "--cni-bin-dir=/usr/lib/cni", "--hairpin-mode=none", "--non-masquerade-cidr=0.0.0.0/0", "--v=4"},
			DockerArgs:  []string{"--live-restore=false"}})
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			for _, ev := range events {
				r := &rig{lab: l, node: n, cell: &cell{was: w, event: ev, metric: w.metric}, pods: map[string]*pod{}}
				if err := r.run(ctx); err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, ev, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}
