// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/load"
)

func played(c judgetest.Change) *history.History {
	of := func(name string, status int, kubelets [hosts]string, swaps ...swap) stage {
		s := at(name, old, 0, "", swaps...)
		s.Nodes, s.Status, s.Kept = s.Nodes[:hosts], status, 8
		for i, k := range kubelets {
			s.Nodes[i].Kubelet = k
		}
		return s
	}
	return history.Make(history.Begin{Lab: "fleet-playbook", Variant: "ours", Profile: "short"}, c.Of([]any{
		of(halted, 2, [hosts]string{holdfast, old}, swapAt(1, 0, done)), of(resumed, 0, [hosts]string{holdfast, holdfast}, swapAt(2, 0, done)),
		of(home, 0, [hosts]string{old, old}, swapAt(1, 0, done), swapAt(2, 20, done)), loaded{load.Report{OK: 1000}},
	})...)
}

func TestJudgePlaybook(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "fleet-playbook")
	judgetest.Cut(t, l, played(nil))
	judgetest.Judged(t, l, labkit.Failed, played, map[string]judgetest.Change{
		"the playbook ended with status 0":        in(halted, func(s *stage) { s.Status = 0 }),
		"the playbook ended with status 4":        in(home, func(s *stage) { s.Status = 4 }),
		`Holdfast is on ["node1" "node2"]`:        in(halted, func(s *stage) { s.Nodes[1].Kubelet = holdfast }),
		`["node1" "node2"] were swapped`:          in(halted, func(s *stage) { s.Swaps = append(s.Swaps, swapAt(2, 20, done)) }),
		"node2 has no kubelet that answers":       in(halted, func(s *stage) { s.Nodes[1].Healthy = false }),
		"node1 has kubelet v1.9.11":               in(home, func(s *stage) { s.Nodes[0].Kubelet = "v1.9.11" }),
		"the kubelet of node1 was started again":  in(resumed, func(s *stage) { s.Nodes[0].PID = 7 }),
		`the swap of node2 ended with "restored"`: in(resumed, func(s *stage) { s.Swaps[0].End = restored }),
		"node1 and node2 were in a swap at once":  in(home, func(s *stage) { s.Swaps = []swap{swapAt(1, 0, done), swapAt(2, 5, done)} }),
		"1 containers were replaced":              in(home, func(s *stage) { s.Lost = []string{"default/web/web"} }),
		"1001 requests, 1 failed":                 judgetest.As(loaded{load.Report{OK: 1000, Failed: 1}}),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, played, map[string]judgetest.Change{
		"0 containers": in(home, func(s *stage) { s.Kept = 0 }),
		"with 1 nodes": in(home, func(s *stage) { s.Nodes = s.Nodes[:1] }),
		"1 loads":      judgetest.As(loaded{load.Report{OK: 5}}),
	})
}

// TestSSH: what stands in for ssh enters the namespaces of the host that is named before the command.
func TestSSH(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ssh": ssh, "node2": "4711", "nsenter": "#!/bin/sh\nprintf '%s,' \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"": {"-o", "ControlPersist"},
		"--target,4711,--mount,--uts,--ipc,--net,--pid,--cgroup,/bin/sh,-c,echo a  b,": {"-C", "-o", "ConnectTimeout=10", "node2", "echo a  b"},
	} {
		cmd := exec.Command(filepath.Join(dir, "ssh"), args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOLDFAST_LAB_NODES="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%q: %v %s", args, err, out)
		}
	}
}
