// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/procfs"

	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

type procInfo struct {
	pid     int
	state   string
	cmdline string
	id      string // value of the marker in its environment
}

// processes reads /proc; processes that end meanwhile are left out.
func processes() []procInfo {
	all, err := procfs.AllProcs()
	if err != nil {
		return []procInfo{{pid: -1, cmdline: err.Error()}} // a leak, so that it is seen
	}
	var out []procInfo
	for _, ps := range all {
		stat, err := ps.Stat()
		if err != nil {
			continue
		}
		p := procInfo{pid: ps.PID, state: stat.State}
		if args, err := ps.CmdLine(); err == nil {
			p.cmdline = strings.Join(args, " ")
		}
		if len(p.cmdline) > 160 {
			p.cmdline = p.cmdline[:160] + "…"
		}
		env, _ := ps.Environ()
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, process.Marker+"="); ok {
				p.id = v
			}
		}
		out = append(out, p)
	}
	return out
}

// mountsBelow lists the mounts whose mount point is dir or below it.
func mountsBelow(dir string) []string {
	ms, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, m := range ms {
		out = append(out, "mount "+m.Mountpoint)
	}
	return out
}

// Leaks looks from outside for what a run with that directory and ID has left:
// processes with its marker in their environment, mounts below its directory, its
// cgroups. Ends take a moment,
// so it looks again for up to 5 s before it answers.
func Leaks(ctx context.Context, dir, id string) []string {
	var leaks []string
	_ = wait.Until(ctx, "nothing left", 5*time.Second, func(context.Context) (bool, error) {
		leaks = nil
		for _, p := range processes() {
			if (p.id == id || p.pid < 0) && p.pid != os.Getpid() && p.state != "Z" {
				leaks = append(leaks, fmt.Sprintf("process %d: %s", p.pid, p.cmdline))
			}
		}
		leaks = append(leaks, mountsBelow(dir)...)
		leaks = append(leaks, cgroupLeaks(Cgroup(id))...)
		return len(leaks) == 0, nil
	})
	return leaks
}

// cgroupLeaks has one line for each hierarchy that still has rel.
func cgroupLeaks(rel string) []string {
	roots, _ := filepath.Glob(filepath.Join(CgroupRoot, "*", rel))
	for i, r := range roots {
		roots[i] = "cgroup " + r
	}
	return roots
}

// Few joins at most six of the lines.
func Few(lines []string) string {
	if len(lines) > 6 {
		lines = append(lines[:6:6], fmt.Sprintf("and %d more", len(lines)-6))
	}
	return strings.Join(lines, "; ")
}
