// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

type procInfo struct {
	pid     int
	state   byte
	cmdline string
	id      string // value of the marker in its environment
}

// processes reads /proc; processes that end meanwhile are left out.
func processes() []procInfo {
	ents, _ := os.ReadDir("/proc")
	var out []procInfo
	for _, ent := range ents {
		pid, err := strconv.Atoi(ent.Name())
		if err != nil {
			continue
		}
		d := "/proc/" + ent.Name() + "/"
		stat, err := os.ReadFile(d + "stat")
		if err != nil {
			continue
		}
		p := procInfo{pid: pid}
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) {
			p.state = stat[i+2]
		}
		if b, err := os.ReadFile(d + "cmdline"); err == nil {
			p.cmdline = strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
		}
		if len(p.cmdline) > 160 {
			p.cmdline = p.cmdline[:160] + "…"
		}
		if b, err := os.ReadFile(d + "environ"); err == nil {
			for _, kv := range strings.Split(string(b), "\x00") {
				if v, ok := strings.CutPrefix(kv, process.Marker+"="); ok {
					p.id = v
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// mountsBelow lists mounts of a mountinfo file whose mount point is dir or
// below it.
func mountsBelow(mountinfo, dir string) []string {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		f := strings.Fields(l)
		if len(f) > 4 && (f[4] == dir || strings.HasPrefix(f[4], dir+"/")) {
			out = append(out, "mount "+f[4])
		}
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
			if p.id == id && p.pid != os.Getpid() && p.state != 'Z' {
				leaks = append(leaks, fmt.Sprintf("process %d: %s", p.pid, p.cmdline))
			}
		}
		leaks = append(leaks, mountsBelow("/proc/self/mountinfo", dir)...)
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
