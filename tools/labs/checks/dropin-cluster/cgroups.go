// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropincluster

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"holdfast/tools/build/dropin"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
)

// limits are the files of control groups that a kubelet or dockerd writes.
var limits = []string{"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes",
	"memory.soft_limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness", "memory.oom_control", "pids.max", "blkio.weight", "devices.list"}

// underOOM is the kernel's own part of memory.oom_control.
var underOOM = regexp.MustCompile(`(under_oom|oom_kill) [0-9]+`)

// podDir is a pod's group, with its UID.
var podDir = regexp.MustCompile(`\bpod([0-9a-f-]{36})\b`)

// cgroups are those of the node, of the pods only this turn's, with their limits.
func (l *lab) cgroups(ctx context.Context) (dropin.Run, error) {
	pods, err := l.c.Client.List(ctx, kube.Pods, l.ns, "")
	if err != nil {
		return nil, err
	}
	all, err := l.n.Docker.Containers(ctx, true)
	if err != nil {
		return nil, err
	}
	apps, words := map[string]bool{}, []string{}
	for i := range pods {
		app, _, _ := strings.Cut(pods[i].GetName(), "-")
		apps[string(pods[i].GetUID())] = true
		words = append(words, string(pods[i].GetUID()), "-"+app)
	}
	for _, c := range all {
		words = append(words, c.ID, c.Labels[node.LabelContainer])
	}
	name := strings.NewReplacer(words...)
	var out dropin.Run
	for _, dir := range machine.Cgroups(l.n.CgroupPath()) {
		rel, err := filepath.Rel(machine.CgroupRoot, dir)
		if err != nil {
			return nil, err
		}
		if m := podDir.FindStringSubmatch(rel); m != nil && !apps[m[1]] {
			continue // an earlier turn's, which is being removed
		}
		rel = strings.Replace(rel, l.n.CgroupPath(), "NODE", 1)
		for _, file := range limits {
			raw, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // of another hierarchy, or the group is gone
			}
			value := underOOM.ReplaceAllString(strings.Join(strings.Fields(string(raw)), " "), "$1")
			out = append(out, dropin.Fact{Kind: "cgroup", Component: dropin.Kubelet, Name: l.normal(name.Replace(rel)) + " " + file, Value: value})
		}
	}
	return out, nil
}
