// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

// playbookFile is what operators run, below the checkout.
const playbookFile = "docs/user/fleet-playbook.yaml"

// hosts are the nodes of the lab fleet-playbook.
const hosts = 2

// The stages of the lab fleet-playbook, in order.
const (
	halted  = "the playbook, with a flag that Holdfast refuses on the second host"
	resumed = "the playbook again, without the flag"
	home    = "the playbook with back=true"
)

func playbookLab(of labkit.Lab) labkit.Lab {
	of.Name = "fleet-playbook"
	of.Summary = "Ansible swaps the kubelets 1.7.0 of two nodes with the playbook of docs/user/fleet.md, stops at a refused flag, and goes back"
	of.Packages = []string{node.SystemdPackage, "ansible-core"}
	of.Variants = []labkit.Variant{labkit.Ours}
	of.Steps = playbookSteps
	of.Oracle = labkit.Oracle{Text: []string{
		"a refused flag on the second host ends the playbook with a status that is not 0; the first host has Holdfast, the second host has not changed",
		"without the flag the second host gets Holdfast, and the first host still runs the same kubelet process; then both go back; two hosts are never in a swap at once",
		"no container of a pod is recreated, and no request fails",
	}, Judge: judgePlaybook}
	of.Timeout = func(labkit.Profile) time.Duration { return 25 * time.Minute }
	return of
}

func playbookSteps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	do := func(name, text string, f func(ctx context.Context) error) labkit.Step {
		return labkit.Step{Text: text, Do: func(ctx context.Context) error { return l.stage(ctx, name, f) }}
	}
	return []labkit.Step{
		{Text: fmt.Sprintf("start the control plane and %d nodes whose kubelet v1.7.0 is a systemd unit", hosts), Do: func(ctx context.Context) error { return l.start(ctx, hosts) }},
		{Text: fmt.Sprintf("create %d pods on each node, and send requests to all of them", podsANode), Do: l.create},
		do(halted, "run the playbook while the unit of "+badNode+" has a flag that Holdfast refuses", func(ctx context.Context) error {
			return errors.Join(l.refuse(ctx), l.play(ctx))
		}),
		do(resumed, "remove the flag and run the playbook again", func(ctx context.Context) error {
			return errors.Join(l.unit(badNode).Node.Run(ctx, "rm", kubeletlab.ExtraFile), l.play(ctx))
		}),
		do(home, "run the playbook with back=true", func(ctx context.Context) error { return l.play(ctx, "-e", "back=true") }),
		{Text: "stop the load", Do: func(context.Context) error {
			l.e.Record(loaded{l.load.Stop()})
			return nil
		}},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

// ssh stands in for ssh: it runs the command in the namespaces of a node. Ansible asks it first, with one
// option alone, whether it knows that option.
const ssh = `#!/bin/bash
set -euo pipefail
if (($# < 3)); then
  exit 0
fi
host=${@: -2:1} command=${@: -1}
pid=$(<"$HOLDFAST_LAB_NODES/$host")
exec nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup /bin/sh -c "$command"
`

// play runs the playbook on all nodes. Its exit status is recorded.
func (l *lab) play(ctx context.Context, args ...string) error {
	dir := l.e.Path("ansible")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "programs"), 0o755), os.MkdirAll(filepath.Join(dir, "nodes"), 0o755),
		os.WriteFile(filepath.Join(dir, "ssh"), []byte(ssh), 0o755),
		os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nexec "+l.e.Stock(base, "kubectl").Path+" --kubeconfig="+l.c.APIServer.AdminKubeconfig+" \"$@\"\n"), 0o755)); err != nil {
		return err
	}
	for name, file := range map[string]string{"kubectl-holdfast": l.holdfast, "kubelet": l.e.Ours(base, "kubelet").Path} {
		if err := exec.CommandContext(ctx, "cp", file, filepath.Join(dir, "programs", name)).Run(); err != nil {
			return err
		}
	}
	var names []string
	for _, n := range l.c.Nodes {
		names = append(names, n.Name)
		pid := strings.Split(n.PIDNamespace(), "/")[2] // /proc/PID/ns/pid
		if err := os.WriteFile(filepath.Join(dir, "nodes", n.Name), []byte(pid), 0o644); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ansible-playbook", append([]string{"-i", strings.Join(names, ",") + ",", filepath.Join(l.e.Root, playbookFile),
		"-e", fmt.Sprintf(`{"programs": %q, "dir": "/var/lib/lab/fleet", "keep_in": %q, "kubectl": %q, "ansible_become": false, "ansible_python_interpreter": "/usr/bin/python3"}`,
			filepath.Join(dir, "programs"), keepIn, filepath.Join(dir, "kubectl"))}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C.UTF-8", "ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCAL_TEMP="+dir, "ANSIBLE_REMOTE_TEMP=/var/lib/lab/ansible", "ANSIBLE_PIPELINING=1",
		"ANSIBLE_SSH_EXECUTABLE="+filepath.Join(dir, "ssh"), "ANSIBLE_SSH_TRANSFER_METHOD=piped", "ANSIBLE_SSH_USETTY=False", "HOLDFAST_LAB_NODES="+filepath.Join(dir, "nodes"))
	out, err := cmd.CombinedOutput()
	l.e.Logf("ansible-playbook %s: %v\n%s", strings.Join(args, " "), err, out)
	var exited *exec.ExitError
	if errors.As(err, &exited) && ctx.Err() == nil {
		l.status = exited.ExitCode()
		return nil
	}
	return err
}

// unit is that of a node.
func (l *lab) unit(name string) *kubeletlab.Unit {
	for _, u := range l.units {
		if u.Node.Name == name {
			return u
		}
	}
	panic("no node " + name)
}

// refuse writes a flag that Holdfast refuses into the unit's environment file of badNode.
func (l *lab) refuse(ctx context.Context) error {
	return l.unit(badNode).Write(ctx, kubeletlab.ExtraFile, "KUBELET_EXTRA_ARGS=--api-servers="+l.c.APIServer.URL+"\n")
}

func judgePlaybook(h *history.History) labkit.Outcome {
	var wrong, facts []string
	want := []struct {
		name        string
		fails       bool
		have, swaps string // which nodes have Holdfast, and which were swapped
		isSame      bool   // the kubelet of the first node
	}{{halted, true, "node1", "node1", false}, {resumed, false, "node1 node2", "node2", true}, {home, false, "", "node1 node2", false}}
	seen := history.Of[stage](h)
	for i, s := range seen {
		if i >= len(want) || s.Name != want[i].name || len(s.Nodes) != hosts || s.Kept+len(s.Lost) == 0 {
			return labkit.InconclusiveBecause("stage %d is %q, with %d nodes and %d containers", i+1, s.Name, len(s.Nodes), s.Kept+len(s.Lost))
		}
		w := want[i]
		bad := func(format string, a ...any) { wrong = append(wrong, s.Name+": "+fmt.Sprintf(format, a...)) }
		have := s.whole(bad)
		var swapped []string
		for _, x := range s.Swaps {
			if x.End != done {
				bad("the swap of %s ended with %q", x.Node, x.End)
			}
			swapped = append(swapped, x.Node)
		}
		if strings.Join(have, " ") != w.have || strings.Join(swapped, " ") != w.swaps {
			bad("Holdfast is on %q, and %q were swapped; want %q and %q", have, swapped, w.have, w.swaps)
		}
		if (s.Status != 0) != w.fails {
			bad("the playbook ended with status %d", s.Status)
		}
		if w.isSame && s.Nodes[0].PID != seen[i-1].Nodes[0].PID {
			bad("the kubelet of %s was started again", s.Nodes[0].Name)
		}
		if two := overlap(s.Swaps); two != "" {
			bad("%s were in a swap at once", two)
		}
		facts = append(facts, fmt.Sprintf("%s: %.0f s, status %d, %d swaps, %d containers kept", s.Name, s.Seconds, s.Status, len(s.Swaps), s.Kept))
	}
	res := conclude(h, wrong, len(seen), len(want), "the playbook stopped at a refused flag, continued without the flag, and swapped back; no container was recreated")
	res.Facts = facts
	return res
}
