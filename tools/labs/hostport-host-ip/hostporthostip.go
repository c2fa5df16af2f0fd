// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostporthostip is the lab hostport-host-ip: on which addresses of a node a CNI plugin opens
// a host port. See tools/labs/hostport-host-ip/README.md.
package hostporthostip

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	// patience is for what takes seconds on an idle machine.
	patience = 2 * time.Minute
	// other is a second address of the node.
	other    = "10.90.0.111"
	hostPort = 18080
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:     "hostport-host-ip",
		Summary:  "a host port with a hostIP is open on all addresses of the node",
		Test:     []labkit.Variant{labkit.Ours},
		Steps:    steps,
		Oracle:   oracle,
		Packages: []string{node.CNIPackage},
		Timeout:  func(labkit.Profile) time.Duration { return 8 * time.Minute },
		Needs:    []labkit.Binary{labkit.BinaryUnderTest(base, "kubelet"), labkit.StockBinary(base, "kubelet")},
	}}
}

type lab struct {
	e    *labkit.Env
	node *node.Node
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start a node with two addresses and the kubelet under test, whose CNI network has portmap", Do: l.start},
		{Text: "start a pod with a host port on the first address, and connect to both", Do: l.open},
		{Text: "swap to the stock kubelet, remove the pod, and check which of portmap's rules remain", Do: l.down},
		labkit.AllRun(func(context.Context) error { return l.node.Kubelet.Err() }),
	}
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.node, err = l.e.StartNode(ctx, nil, node.Config{Name: "node1", CNI: true, Kubelet: l.e.UnderTest(base, "kubelet")}); err != nil {
		return err
	}
	return l.node.Run(ctx, "ip", "addr", "add", other+"/24", "dev", "eth0")
}

func (l *lab) manifest() string { return filepath.Join(l.node.Dir, "manifests", "web.yaml") }

func (l *lab) serves(ctx context.Context, ip string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", ip, hostPort))
	return err == nil
}

// rules are those of portmap that send a host port to a pod.
func (l *lab) rules(ctx context.Context) ([]string, error) {
	out, err := l.node.Output(ctx, "iptables", "-t", "nat", "-S")
	var rules []string
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "CNI-DN-") && strings.Contains(line, "DNAT") {
			rules = append(rules, line)
		}
	}
	return rules, err
}

// reached is which addresses answer on the host port, and how many rules of portmap there are.
type reached struct {
	Own, Other bool
	Rules      int
}

// ended is how many rules of portmap are left after the pod.
type ended struct{ Rules int }

func (l *lab) open(ctx context.Context) error {
	pod := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: %q
    imagePullPolicy: IfNotPresent
    ports: [{containerPort: 8080, hostPort: %d, hostIP: %s}]
`, node.WebImage("v1"), hostPort, l.node.IP)
	if err := os.WriteFile(l.manifest(), []byte(pod), 0o644); err != nil {
		return err
	}
	if err := wait.Until(ctx, "the pod serves on its host port", patience, func(ctx context.Context) (bool, error) {
		return l.serves(ctx, l.node.IP), nil
	}); err != nil {
		return err
	}
	rules, err := l.rules(ctx)
	if err != nil {
		return err
	}
	for _, r := range rules {
		l.e.Logf("%s", r)
	}
	l.e.Record(reached{Own: l.serves(ctx, l.node.IP), Other: l.serves(ctx, other), Rules: len(rules)})
	return nil
}

func (l *lab) down(ctx context.Context) error {
	if err := l.node.SwapKubelet(ctx, l.e.Stock(base, "kubelet")); err != nil {
		return err
	}
	if err := os.Remove(l.manifest()); err != nil {
		return err
	}
	var rules []string
	err := wait.Until(ctx, "portmap's rules are gone, or time passes", patience, func(ctx context.Context) (bool, error) {
		var err error
		rules, err = l.rules(ctx)
		return len(rules) == 0 && !l.serves(ctx, l.node.IP), err
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	l.e.Record(ended{Rules: len(rules)})
	return nil
}

var oracle = labkit.Oracle{
	Text: []string{
		"reproduced: a host port with the first address of the node as hostIP also answers on the second address",
		"absent: the port answers on the first address only; the next kubelet, stock, removes the rules with the pod",
		"also reproduced: rules of the port remain",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	r, e := history.One[reached](h), history.One[ended](h)
	switch {
	case !r.Own || r.Rules == 0:
		return labkit.InconclusiveBecause("the first address answers: %v; %d rules of portmap", r.Own, r.Rules)
	case r.Other:
		return labkit.ReproducedBecause("the port answers on an address that is not its hostIP")
	case e.Rules > 0:
		return labkit.ReproducedBecause("%d rules of portmap remain after the pod's removal", e.Rules)
	}
	return labkit.AbsentBecause("the port answers on its hostIP only, and the stock kubelet removed its rules with the pod")
}
