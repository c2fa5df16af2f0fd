// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

var localnet = row{
	slug:    "localnet-firewall",
	gate:    "LocalnetFirewall",
	summary: "pods reach what listens on the node's loopback only",
	plan: []string{
		"set route_localnet=1 on the node, as kube-proxy does, and listen on its loopback",
		"oracle: a request to 127.0.0.1 that is sent to the node out of a pod's network; absent: it is dropped, while the node itself is answered and the pod is at another address of the node",
	},
	start: startLocalnet,
	judge: judgeLocalnet,
}

const localPort = "9999"

func startLocalnet(ctx context.Context, l *lab) error {
	if err := l.node.Run(ctx, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1"); err != nil {
		return err
	}
	_, err := l.e.Start(ctx, process.Process{Name: "node-local", Path: l.labpod(), Args: []string{"serve"}, In: l.node,
		Env: []string{"LABPOD_LISTEN=127.0.0.1:" + localPort + "," + l.node.IP + ":" + localPort, "LABPOD_VERSION=local"},
		Health: func(ctx context.Context) error {
			return l.node.Run(ctx, l.labpod(), "probe", "http://127.0.0.1:"+localPort+"/")
		}})
	if err != nil {
		return err
	}
	return l.pods(ctx, pod("neighbour", "", ""))
}

// labpod is the program of the images, here outside of a container.
func (l *lab) labpod() string { return node.ToolPath(l.e.Root, "labpod") }

func judgeLocalnet(ctx context.Context, l *lab) (outcome, error) {
	if err := l.waitReady(ctx, "neighbour", 60*time.Second); err != nil {
		return outcome{}, err
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, "neighbour")
	if err != nil {
		return outcome{}, err
	}
	id := kube.ContainerIDs(o)["main"]
	m, err := l.node.Docker.Inspect(ctx, id)
	if err != nil {
		return outcome{}, err
	}
	state, _ := m["State"].(map[string]any)
	pid, _ := state["Pid"].(float64)
	if pid < 2 {
		return outcome{}, fmt.Errorf("container %s has no process: %v", id, state)
	}
	in := func(name string, args ...string) error {
		out, err := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(int(pid)), "--net", "--", name}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	// What a pod with NET_ADMIN, or with NET_RAW and its own packets, does: 127.0.0.1 is
	// behind the gateway.
	gateway := strings.TrimSuffix(l.node.PodCIDR, "0/24") + "1"
	for _, c := range [][]string{
		{"sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1"},
		{"ip", "addr", "del", "127.0.0.1/8", "dev", "lo"},
		{"ip", "route", "add", "127.0.0.1/32", "via", gateway, "src", kube.String(o, "status", "podIP")},
	} {
		if err := in(c[0], c[1:]...); err != nil {
			return outcome{}, err
		}
	}
	// The kubelet syncs its rules once a minute and at its start.
	if l.e.Variant == labkit.Ours {
		if err := wait.Until(ctx, "the rule on the node", 70*time.Second, func(ctx context.Context) (bool, error) {
			rules, err := l.node.Output(ctx, "iptables-save", "-t", "filter")
			return err == nil && strings.Contains(rules, "block incoming localnet connections"), err
		}); err != nil {
			return outcome{}, err
		}
	}
	probe := func(host string) error { return in(l.labpod(), "probe", "http://"+host+":"+localPort+"/") }
	if err := probe(l.node.IP); err != nil {
		return outcome{}, fmt.Errorf("the pod does not reach the node at its own address: %w", err)
	}
	if err := l.node.Run(ctx, l.labpod(), "probe", "http://127.0.0.1:"+localPort+"/"); err != nil {
		return outcome{}, fmt.Errorf("the node does not reach its own loopback: %w", err)
	}
	reached := probe("127.0.0.1")
	var status *exec.ExitError
	if reached != nil && (!errors.As(reached, &status) || !strings.Contains(reached.Error(), "deadline exceeded") && !strings.Contains(reached.Error(), "Timeout")) {
		return outcome{}, fmt.Errorf("the request was not dropped, it failed: %w", reached)
	}
	if reached == nil {
		return outcome{true, "a pod was answered by a program that listens on 127.0.0.1 of its node"}, nil
	}
	if l.e.Variant == labkit.Ours {
		if err := l.localnetRule(ctx); err != nil {
			return outcome{}, err
		}
	}
	return outcome{false, "the request timed out; the node itself is answered, and the pod at the node's own address"}, nil
}

// localnetRule: it was the kubelet's rule that dropped the request. In the long
// profile also the ways out: a stock kubelet leaves the rule, the gate takes it away.
func (l *lab) localnetRule(ctx context.Context) error {
	if err := l.metric(ctx, "holdfast_localnet_firewall_rules_added_total", 1); err != nil {
		return err
	}
	chain, err := l.node.Output(ctx, "iptables", "-nvxL", "KUBE-FIREWALL")
	if err != nil {
		return err
	}
	dropped := 0
	for _, line := range strings.Split(chain, "\n") {
		if f := strings.Fields(line); len(f) > 0 && strings.Contains(line, "block incoming localnet") {
			if dropped, err = strconv.Atoi(f[0]); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
		}
	}
	if dropped == 0 {
		return fmt.Errorf("the rule has dropped nothing:\n%s", chain)
	}
	l.e.Fact("the rule dropped %d packets", dropped)
	if l.e.Profile != labkit.Long {
		return nil
	}
	for _, step := range []struct {
		name    string
		kubelet kube.Program
		rules   int
	}{
		{"stock in ours' place", l.e.Stock(base, "kubelet"), 1},
		{"ours with the gate off", l.e.UnderTest(base, "kubelet").WithGates(map[string]bool{"LocalnetFirewall": false}), 0},
		{"ours again", l.e.UnderTest(base, "kubelet"), 1},
		{"ours restarted", l.e.UnderTest(base, "kubelet"), 1},
	} {
		l.e.Step("localnet-firewall: %s", step.name)
		// A kubelet's sync puts this one back, after it has seen to the rule in question.
		if err := l.node.Run(ctx, "iptables", "-D", "INPUT", "-j", "KUBE-FIREWALL"); err != nil {
			return err
		}
		if err := l.node.SwapKubelet(ctx, step.kubelet); err != nil {
			return err
		}
		if err := wait.Until(ctx, fmt.Sprintf("%s: %d rules", step.name, step.rules), 70*time.Second, func(ctx context.Context) (bool, error) {
			rules, err := l.node.Output(ctx, "iptables-save", "-t", "filter")
			synced, n := strings.Contains(rules, "-A INPUT -j KUBE-FIREWALL\n"), strings.Count(rules, "block incoming localnet connections")
			if err == nil && (!synced || n != step.rules) {
				err = fmt.Errorf("there are %d; synced %v", n, synced)
			}
			return err == nil, err
		}); err != nil {
			return err
		}
		l.e.Fact("%s: %d rules", step.name, step.rules)
	}
	return nil
}
