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
	"sync"
	"time"

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

func init() {
	labkit.Register(labkit.Lab{
		Name:    "predecessor",
		Summary: "ours forgets which kubelet was there, which then recreates containers and loses host ports on the way back",
		Plan: func(p labkit.Profile) []string {
			lines := []string{"start etcd, apiserver and controller manager v1.9.11 and, side by side, one node with kubenet for each kubelet that can have been there"}
			for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours, labkit.GateOff} {
				for _, w := range order {
					if events := plan(v, p)[w]; len(events) > 0 {
						lines = append(lines, fmt.Sprintf("%s: %s → under test → %s → %s, for each of: %s", v, w.name, "what happens", w.back(), strings.Join(events, "; ")))
					}
				}
			}
			return append(lines,
				"before each: power off, remove containers, checkpoints, records and the Node object; pods with and without host ports under the first kubelet",
				"after what happens: more pods under test",
				"oracle: on the way there and back no container is recreated, after the kubelet's log has shown that it compared each; each host port answers",
				"then the last kubelet deletes all pods: it refuses no checkpoint, after its log has shown that kubenet took each sandbox down")
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary("v1.7.0", "kubelet"),
			labkit.StockBinary("v1.8.15", "kubelet"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Packages: []string{"containernetworking-plugins"},
		Timeout: func(p labkit.Profile) time.Duration {
			if p == labkit.Long {
				return 60 * time.Minute
			}
			return 12 * time.Minute
		},
		Run: run,
	})
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
	// wrong is what must not be; empty is what is wanted.
	wrong []string
	// looks counts comparisons of a container that found it kept.
	looks int
	// must is what cannot be kept, with the reason.
	must []string
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager"),
			ExtraArgs: []string{"--allocate-node-cidrs=true", "--cluster-cidr=" + podNet, "--configure-cloud-routes=false"}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c}
	var mu sync.Mutex
	var cells []*cell
	var errs []error
	var wg sync.WaitGroup
	for i, w := range order {
		events := plan(e.Variant, e.Profile)[w]
		if len(events) == 0 {
			continue
		}
		node, err := e.StartNode(ctx, c.APIServer, node.Config{Name: fmt.Sprintf("node%d", i+1),
			KubeletArgs: []string{"--network-plugin=kubenet", "--cni-bin-dir=/usr/lib/cni", "--hairpin-mode=none", "--non-masquerade-cidr=0.0.0.0/0", "--v=4"},
			DockerArgs:  []string{"--live-restore=false"}})
		if err != nil {
			return labkit.Result{}, err
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for _, ev := range events {
				r := &rig{lab: l, node: node, cell: &cell{was: w, event: ev, metric: w.metric}, pods: map[string]*pod{}}
				err := r.run(ctx)
				mu.Lock()
				cells = append(cells, r.cell)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s, %s: %w", w.name, ev, err))
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
	}
	wg.Wait()
	var wrong []string
	looks := 0
	e.Fact("%-13s %-24s %6s  %s", "was there", "then", "looks", "wrong")
	for _, w := range order {
		for _, x := range cells {
			if x.was != w {
				continue
			}
			e.Fact("%-13s %-24s %6d  %s", w.name, x.event, x.looks, list(x.wrong))
			for _, m := range x.must {
				e.Fact("%-13s %-24s         cannot be kept: %s", "", "", m)
			}
			for _, s := range x.wrong {
				wrong = append(wrong, fmt.Sprintf("%s, %s: %s", w.name, x.event, s))
			}
			looks += x.looks
		}
	}
	if err := errors.Join(errs...); err != nil {
		return labkit.Result{}, err
	}
	if len(wrong) > 0 {
		return labkit.ReproducedBecause("%s", list(wrong)), nil
	}
	return labkit.AbsentBecause("%d cells, %d looks at a container or sandbox: all kept, no host port lost", len(cells), looks), nil
}

func list(l []string) string {
	if len(l) == 0 {
		return "nothing"
	}
	return strings.Join(l, "; ")
}
