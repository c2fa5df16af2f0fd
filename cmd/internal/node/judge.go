// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"holdfast/cmd/internal/eviction"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeletflags"
)

// kubeconfig is the node's own, "" if the line names none.
func (m *machine) kubeconfig() string {
	file := m.line.or("kubeconfig", "")
	if file == "" && m.line.is("require-kubeconfig", false) {
		file = "/var/lib/kubelet/kubeconfig"
	}
	return file
}

func (m *machine) judgeKubeconfig() {
	file := m.kubeconfig()
	if b, _ := m.line.value("bootstrap-kubeconfig"); file == "" || b != "" {
		return
	}
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "server") {
		m.found("kubeconfig", "HF508", "", file+" does not exist, or names no server", "put the node's kubeconfig there")
		return
	}
	m.ok("kubeconfig", "%s", file)
}

// judgePlace tells whether the kept kubelet and the new one have room.
func (m *machine) judgePlace(file string) {
	size := func(f string) uint64 {
		s, err := os.Stat(f)
		if err != nil {
			return 0
		}
		return uint64(s.Size())
	}
	lib := m.h.Lib
	for lib != "/" && !exists(lib) {
		lib = filepath.Dir(lib)
	}
	need := map[string]uint64{filepath.Dir(m.path): size(file) + size(m.path)}
	need[lib] += size(m.path) + 1<<20
	dirs := []string{filepath.Dir(m.path), lib}
	if device(dirs[0]) == device(dirs[1]) { // links do
		need[dirs[0]], need[lib] = size(file)+1<<20, size(file)+1<<20
	}
	for _, dir := range dirs {
		switch s, err := m.h.Space(dir); {
		case err != nil:
			m.found("place", "HF504", "", fmt.Sprintf("%s: %v", dir, err), "")
		case s.ReadOnly:
			m.found("place", "HF504", "", dir+" is on a file system that is read-only", "mount it for writing, or put the kubelet elsewhere: /opt/bin, and a drop-in with its path")
		case s.FreeBytes < need[dir]:
			m.found("place", "HF504", "", fmt.Sprintf("%s has %d MiB left, the swap needs %d", dir, s.FreeBytes>>20, need[dir]>>20+1), "free some space")
		default:
			continue
		}
		return
	}
	m.ok("place", "%s and %s have enough space", dirs[0], m.h.Lib)
}

func exists(f string) bool {
	_, err := os.Lstat(f)
	return err == nil
}

func device(f string) uint64 {
	var s syscall.Stat_t
	if syscall.Stat(f, &s) != nil {
		return math.MaxUint64
	}
	return uint64(s.Dev) // of another type on other systems
}

// judgeSwapSpace: 1.8 and later do not start on a machine with swap.
func (m *machine) judgeSwapSpace(v version) {
	b, err := os.ReadFile(filepath.Join(m.h.Proc, "swaps"))
	if err != nil || v.minor <= 7 {
		return
	}
	on := strings.Count(strings.TrimSpace(string(b)), "\n") > 0
	if on && m.line.is("fail-swap-on", m.line.is("experimental-fail-swap-on", true)) {
		m.found("swap space", "HF506", "", v.text+" does not start while the machine has swap on", "swapoff -a, or --experimental-fail-swap-on=false, which every release from 1.7 to 1.9 accepts")
		return
	}
	m.ok("swap space", "%s", map[bool]string{true: "on, and allowed", false: "off"}[on])
}

// judgePropagation: a kubelet from 1.8 on binds its root directory over itself where that is not
// shared, and hides the mounts of 1.7 (doMakeRShared in pkg/util/mount/mount_linux.go).
func (m *machine) judgePropagation(v version) {
	b, err := os.ReadFile(filepath.Join(m.h.Proc, "self/mountinfo"))
	if err != nil || v.minor <= 7 || m.old.version.minor > 7 {
		return
	}
	root, at, shared := m.line.rootDir(), "", false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 7 || len(f[4]) < len(at) || f[4] != "/" && root != f[4] && !strings.HasPrefix(root, f[4]+"/") {
			continue
		}
		end := slices.Index(f, "-")
		at, shared = f[4], slices.ContainsFunc(f[6:max(end, 6)], func(s string) bool { return strings.HasPrefix(s, "shared:") })
	}
	if at != "" && !shared {
		m.found("propagation", "HF516", "", root+" is on a mount that is not shared: a kubelet from 1.8 on hides the volumes that 1.7 mounted", "mount --make-rshared / now and after each boot")
		return
	}
	m.ok("propagation", "shared")
}

// firstStrict is the systemd that first refuses Delegate for a slice, which kubelets of 1.7 to 1.9
// set (kubernetes/kubernetes#61474).
const firstStrict = 237

// judgeDriver: with --cgroup-driver=systemd these kubelets do not start on such a systemd, unless
// somebody has mended it: then it started the kubelet that runs, or, while none does, as during the
// installation of a package, the slice that a kubelet makes for its pods.
func (m *machine) judgeDriver(ctx context.Context) {
	if !m.o.systemd() || !systemdDriver(m.line) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	out, err := m.h.Run(ctx, "systemctl", "--version")
	release := 0
	if _, e := fmt.Sscanf(out, "systemd %d", &release); err != nil || e != nil {
		m.found("cgroup driver", "HF509", "", "the release of systemd could not be read from systemctl --version", "")
		return
	}
	since := int64(0)
	if m.pid == 0 {
		since = m.sliceSince(ctx)
	} else if m.now != nil && systemdDriver(m.now) {
		since = started(m.h, m.pid)
	}
	runs := since > changed(filepath.Join(m.h.Proc, "1/exe"))
	if release >= firstStrict && !runs {
		m.found("cgroup driver", "HF531", "", fmt.Sprintf("systemd %d refuses what a kubelet of 1.7 to 1.9 sets with --cgroup-driver=systemd: it would not start", release),
			"drain the node and give docker and the kubelet the driver cgroupfs, or go back to systemd 236")
		return
	}
	m.ok("cgroup driver", "systemd %d starts a kubelet with its driver", release)
}

// sliceSince is since when the slice of pods is there, in seconds since 1970; 0 if it is not. A
// kubelet makes it by systemd only with that driver.
func (m *machine) sliceSince(ctx context.Context) int64 {
	p, err := properties(ctx, m.h, "kubepods.slice", "ActiveState", "ActiveEnterTimestampMonotonic")
	boot := booted(m.h)
	if err != nil || boot == 0 || p["ActiveState"] != "active" {
		return 0
	}
	micros, err := strconv.ParseInt(p["ActiveEnterTimestampMonotonic"], 10, 64)
	if err != nil {
		return 0
	}
	return boot + micros/1e6
}

func systemdDriver(l flags) bool {
	driver, _ := l.value("cgroup-driver")
	return driver == "systemd"
}

var (
	// passing are programs that a kubelet starts and that end by themselves or may end.
	passing = regexp.MustCompile(`^(kubelet|journalctl|u?mount|nsenter|systemd-run|ip6?tables.*|ebtables|conntrack|socat|tc|du|find|nice|ionice|rbd|blkid|udevadm|fsck.*|mkfs.*|e2fsck|modprobe|sh|bash)$`)
	daemon  = regexp.MustCompile(`gluster|fuse|fs$`)
)

// judgeCgroup looks for daemons of volumes that stopping the unit ends with the kubelet.
func (m *machine) judgeCgroup() {
	if m.unit == nil || m.unit.killMode != "control-group" || m.unit.cgroup == "" {
		return
	}
	var others, volumes []string
	for _, root := range []string{"fs/cgroup/systemd", "fs/cgroup"} {
		b, err := os.ReadFile(filepath.Join(m.h.Sys, root, m.unit.cgroup, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, pid := range strings.Fields(string(b)) {
			comm, _ := os.ReadFile(filepath.Join(m.h.Proc, pid, "comm"))
			switch name := strings.TrimSpace(string(comm)); {
			case name == "" || pid == strconv.Itoa(m.pid) || passing.MatchString(name):
			case daemon.MatchString(name):
				volumes = append(volumes, pid+" "+name)
			default:
				others = append(others, pid+" "+name)
			}
		}
		break
	}
	remedy := "drain their pods, or add a drop-in with [Service] KillMode=process, and systemctl daemon-reload"
	switch {
	case len(volumes) > 0:
		m.found("KillMode", "HF507", finding.Stop, "a stop of the unit ends processes of volumes: "+strings.Join(volumes, ", "), remedy)
	case len(others) > 0:
		m.found("KillMode", "HF507", "", "a stop of the unit ends "+strings.Join(others, ", "), remedy)
	default:
		m.ok("KillMode", "no volume's process is in the unit")
	}
}

// judgeDisk asks whether the target would evict, or fail, pods at its start.
func (m *machine) judgeDisk(ctx context.Context, v version, back bool) {
	table, err := kubeletflags.Load()
	if err != nil {
		m.found("disk", "HF509", "", err.Error(), "")
		return
	}
	limits, ok := m.line.value("eviction-hard")
	if !ok {
		row, _ := table.Row(v.minor, v.patch, v.holdfast)
		limits = table.Default(row, "eviction-hard")
	}
	root, images := m.line.rootDir(), ""
	if socket := m.line.dockerSocket(); socket != "" {
		dir, err := dockerRoot(ctx, m.h, socket)
		if err != nil {
			m.found("docker", "HF509", finding.Stop, err.Error(), "a kubelet does not start without docker: start docker first")
			return
		}
		images = dir
	}
	var low []string
	for _, t := range eviction.Parse(limits) {
		signal := t.Signal
		dir := root
		if strings.HasPrefix(signal, "imagefs.") {
			if dir = images; dir == "" {
				continue
			}
		}
		var free, total uint64
		if signal == "memory.available" {
			if free, total = memory(m.h); total == 0 {
				continue
			}
			dir = "memory"
		} else {
			s, err := m.h.Space(dir)
			if err != nil {
				m.found("disk", "HF509", "", fmt.Sprintf("%s: %v", dir, err), "compare it with the unit's --eviction-hard yourself")
				return
			}
			if free, total = s.FreeBytes, s.TotalBytes; strings.HasSuffix(signal, ".inodesFree") {
				free, total = s.FreeInodes, s.TotalInodes
			}
		}
		if is, _, text := t.Below(float64(free), float64(total)); is && total > 0 {
			low = append(low, fmt.Sprintf("%s (%s)", text, dir))
		}
	}
	if len(low) == 0 {
		m.ok("disk", "above the limits of eviction")
		return
	}
	level := finding.Stop
	if back { // a way back must stay open
		level = finding.Warn
	}
	m.found("disk", "HF105", level, strings.Join(low, "; ")+": "+v.text+" would evict pods", "free some space: remove unused images, logs and files of pods")
}

// memory is what can be used and what there is, in bytes; 0 if it is not known.
func memory(h *Host) (free, total uint64) {
	b, _ := os.ReadFile(filepath.Join(h.Proc, "meminfo"))
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseUint(f[1], 10, 64)
		switch f[0] {
		case "MemAvailable:":
			free = n << 10
		case "MemTotal:":
			total = n << 10
		}
	}
	if free == 0 {
		return 0, 0
	}
	return free, total
}

func (m *machine) judgeSubpaths(v version) {
	list, err := subpaths(m.h, m.line.rootDir())
	switch {
	case err != nil:
		m.found("subPaths", "HF509", "", err.Error(), "")
	case len(list) > 0 && v.deletes():
		m.found("subPaths", "HF512", "", fmt.Sprintf("%d mounts of subPaths exist, and %s would delete the files in them", len(list), v.text), "node back unmounts them before it starts that kubelet; do not start it in any other way")
	default:
		m.ok("subPaths", "%d mounts", len(list))
	}
}

func (m *machine) judgeContainers(ctx context.Context) {
	socket := m.line.dockerSocket()
	if socket == "" {
		m.found("containers", "HF509", "", "the runtime is not docker on this machine", "compare the pods' containers yourself")
		return
	}
	list, err := running(ctx, m.h, socket)
	if err != nil {
		if !slices.ContainsFunc(m.rows, func(r row) bool { return r.check == "docker" }) {
			m.found("docker", "HF509", finding.Stop, err.Error(), "a kubelet does not start without docker: start docker first")
		}
		return
	}
	m.ok("containers", "%d run, in %d pods", len(list), pods(list))
}

func pods(list []container) int {
	uids := map[string]bool{}
	for _, c := range list {
		uids[c.UID] = true
	}
	return len(uids)
}
