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

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

var localnet = row{
	fix:     "localnet-firewall",
	gate:    "LocalnetFirewall",
	summary: "pods reach programs that listen only on the node's loopback",
	starts:  "set route_localnet=1 on the node, as kube-proxy does, and listen on its loopback",
	does:    "send a request to 127.0.0.1 from a pod's network to the node; in the long profile swap the kubelet to stock, to Holdfast with the gate off, and to Holdfast",
	oracle:  "the request is answered; absent: it is dropped, while requests of the node itself, and of the pod to another address of the node, are answered",
	start:   startLocalnet,
	look:    lookLocalnet,
	judge:   judgeLocalnet,
}

// request is what became of the one to the node's loopback: answered, or timed out.
// AtNode is the pod's to the node's address, AtItself the node's to its loopback. Dropped
// is how many packets the rule of ours dropped.
type request struct {
	AtNode, AtItself   bool
	Answered, TimedOut bool
	Dropped            int
	Counted            float64
}

// ruleAfter is how many rules of ours were there after a change of the kubelet.
type ruleAfter struct {
	Step        string
	Rules, Want int
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
	return l.pods(ctx, pod("neighbour", nil))
}

// labpod is the program of the images, here outside of a container.
func (l *lab) labpod() string { return node.ToolPath(l.e.Root, "labpod") }

func lookLocalnet(ctx context.Context, l *lab) error {
	if err := l.waitReady(ctx, "neighbour", patience); err != nil {
		return err
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, "neighbour")
	if err != nil {
		return err
	}
	id := kube.ContainerIDs(o)["main"]
	m, err := l.node.Docker.Inspect(ctx, id)
	if err != nil {
		return err
	}
	state, _ := m["State"].(map[string]any)
	pid, _ := state["Pid"].(float64)
	if pid < 2 {
		return fmt.Errorf("container %s has no process: %v", id, state)
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
			return err
		}
	}
	// The kubelet syncs its rules once a minute and at its start.
	if l.e.Variant == labkit.Ours {
		if err := wait.Until(ctx, "the rule exists on the node", patience, func(ctx context.Context) (bool, error) {
			rules, err := l.node.Output(ctx, "iptables-save", "-t", "filter")
			return err == nil && strings.Contains(rules, "block incoming localnet connections"), err
		}); err != nil {
			return err
		}
	}
	probe := func(host string) error { return in(l.labpod(), "probe", "http://"+host+":"+localPort+"/") }
	if err := probe(l.node.IP); err != nil {
		return fmt.Errorf("the pod does not reach the node at its own address: %w", err)
	}
	if err := l.node.Run(ctx, l.labpod(), "probe", "http://127.0.0.1:"+localPort+"/"); err != nil {
		return fmt.Errorf("the node does not reach its own loopback: %w", err)
	}
	answered := probe("127.0.0.1")
	var status *exec.ExitError
	if answered != nil && (!errors.As(answered, &status) || !strings.Contains(answered.Error(), "deadline exceeded") && !strings.Contains(answered.Error(), "Timeout")) {
		return fmt.Errorf("the request was not dropped, it failed: %w", answered)
	}
	seen := request{AtNode: true, AtItself: true, Answered: answered == nil, TimedOut: answered != nil}
	if l.e.Variant == labkit.Ours {
		if seen.Dropped, err = l.dropped(ctx); err != nil {
			return err
		}
		if seen.Counted, err = l.rulesAdded(ctx); err != nil {
			return err
		}
	}
	l.e.Record(seen)
	if l.e.Variant != labkit.Ours || l.e.Profile != labkit.Long {
		return nil
	}
	return l.waysOut(ctx)
}

// rulesAdded is how often the kubelet says that it added the rule. One that a kill test killed found
// the rule when it came back: then all rules of its chain go, and the kubelet adds them within a
// minute.
func (l *lab) rulesAdded(ctx context.Context) (float64, error) {
	const metric = "holdfast_localnet_firewall_rules_added_total"
	n, err := l.counted(ctx, metric)
	if err != nil || n > 0 || l.e.Sweep == nil {
		return n, err
	}
	if err := l.node.Run(ctx, "iptables", "-F", "KUBE-FIREWALL"); err != nil {
		return n, err
	}
	err = wait.Until(ctx, "the kubelet adds the rule again", patience, func(ctx context.Context) (_ bool, err error) {
		n, err = l.counted(ctx, metric)
		return n > 0, err
	})
	return n, err
}

// dropped is how many packets the rule of ours has dropped.
func (l *lab) dropped(ctx context.Context) (n int, err error) {
	chain, err := l.node.Output(ctx, "iptables", "-nvxL", "KUBE-FIREWALL")
	for _, line := range strings.Split(chain, "\n") {
		if f := strings.Fields(line); err == nil && len(f) > 0 && strings.Contains(line, "block incoming localnet") {
			if n, err = strconv.Atoi(f[0]); err != nil {
				err = fmt.Errorf("%q: %w", line, err)
			}
		}
	}
	return n, err
}

func judgeLocalnet(h *history.History) finding {
	o, ours := history.One[request](h), h.Variant == string(labkit.Ours)
	switch {
	case !o.AtNode || !o.AtItself || o.Answered == o.TimedOut:
		return cannotTell("not all observations were recorded: %+v", o)
	case o.Answered:
		return finding{happened: true, saw: "a pod got an answer from a program that listens on 127.0.0.1 of its node"}
	case ours && o.Dropped == 0:
		return cannotTell("the request timed out, but the rule has dropped nothing")
	}
	f := finding{saw: "the request timed out; requests of the node itself, and of the pod to the node's own address, were answered"}.
		counting(h, "holdfast_localnet_firewall_rules_added_total", o.Counted, 1)
	if !ours {
		return f
	}
	f.saw += fmt.Sprintf("; the rule dropped %d packets", o.Dropped)
	f = f.measure("packets that the rule dropped", float64(o.Dropped), "")
	if h.Profile != string(labkit.Long) {
		return f
	}
	steps := history.Of[ruleAfter](h)
	if len(steps) != changes {
		return cannotTell("the rules were counted after %d changes of the kubelet, want %d", len(steps), changes)
	}
	for _, s := range steps {
		if s.Rules != s.Want {
			return cannotTell("%s: %d rules, want %d", s.Step, s.Rules, s.Want)
		}
		f.saw += fmt.Sprintf("; %s: %d rules", s.Step, s.Rules)
	}
	return f
}

// changes is how often waysOut swaps the kubelet.
const changes = 4

// waysOut: a stock kubelet leaves the rule, the gate takes it away.
func (l *lab) waysOut(ctx context.Context) error {
	for _, step := range [changes]struct {
		name    string
		kubelet kube.Program
		rules   int
	}{
		{"stock instead of Holdfast", l.e.Stock(l.base, "kubelet"), 1},
		{"Holdfast with the gate off", l.e.UnderTest(l.base, "kubelet").WithGates(map[string]bool{"LocalnetFirewall": false}), 0},
		{"ours again", l.e.UnderTest(l.base, "kubelet"), 1},
		{"ours restarted", l.e.UnderTest(l.base, "kubelet"), 1},
	} {
		l.e.Step("localnet-firewall: %s", step.name)
		// A kubelet's sync puts this one back, after it has seen to the rule in question.
		if err := l.node.Run(ctx, "iptables", "-D", "INPUT", "-j", "KUBE-FIREWALL"); err != nil {
			return err
		}
		if err := l.node.SwapKubelet(ctx, step.kubelet); err != nil {
			return err
		}
		n := 0
		if err := wait.Until(ctx, fmt.Sprintf("%s: %d rules", step.name, step.rules), patience, func(ctx context.Context) (bool, error) {
			rules, err := l.node.Output(ctx, "iptables-save", "-t", "filter")
			synced := strings.Contains(rules, "-A INPUT -j KUBE-FIREWALL\n")
			n = strings.Count(rules, "block incoming localnet connections")
			if err == nil && (!synced || n != step.rules) {
				err = fmt.Errorf("there are %d; synced %v", n, synced)
			}
			return err == nil, err
		}); err != nil {
			return err
		}
		l.e.Record(ruleAfter{step.name, n, step.rules})
	}
	return nil
}
