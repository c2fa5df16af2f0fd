// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/cmd/internal/finding"
)

// Options are the flags of the commands.
type Options struct {
	Unit, New, Program        string
	StopCommand, StartCommand string
	HealthTimeout             time.Duration
	Settle                    time.Duration // less than 0: by the number of pods
	DryRun                    bool
}

func (o Options) systemd() bool { return o.StartCommand == "" }

// machine is the kubelet of a host, its unit and what is kept.
type machine struct {
	h      *Host
	o      Options
	log    io.Writer
	st     *state
	unit   *unit  // nil without systemd
	broken error  // nobody can tell what a start would start
	path   string // the program that a start starts
	line   flags  // and its flags
	pid    int
	now    flags // of the process; nil if there is none
	// old is what the program at path is, new what is to replace it.
	old, new *program
	rows     []row
	result   string // what became of the containers
}

// program is a kubelet's file.
type program struct {
	file, sum string
	answer
}

// row is one line of the check. It is fine if finding is nil.
type row struct {
	check, ok string
	finding   *finding.Finding
}

func (m *machine) ok(check, format string, args ...any) {
	m.rows = append(m.rows, row{check: check, ok: fmt.Sprintf(format, args...)})
}

func (m *machine) found(check, code string, level finding.Level, text, remedy string) {
	f := finding.Of(code, check, text, remedy)
	if level != "" {
		f = f.At(level)
	}
	m.rows = append(m.rows, row{check: check, finding: &f})
}

func (m *machine) findings() []finding.Finding {
	var out []finding.Finding
	for _, r := range m.rows {
		if r.finding != nil {
			out = append(out, *r.finding)
		}
	}
	return out
}

func (m *machine) stops() bool {
	return slices.ContainsFunc(m.findings(), func(f finding.Finding) bool { return f.Level == finding.Stop })
}

// look reads the unit, the process and the state. It changes nothing.
func look(ctx context.Context, h *Host, o Options, log io.Writer) (*machine, error) {
	m := &machine{h: h, o: o, log: log}
	var err error
	if m.st, err = readState(h); err != nil {
		return nil, err
	}
	if o.systemd() {
		m.unit, m.broken = readUnit(ctx, h, o.Unit)
		if m.unit != nil {
			m.path, m.line, m.pid = m.unit.program, m.unit.args, m.unit.mainPID
		}
	} else {
		m.path = o.Program
		if m.path == "" {
			m.path = m.st.Program
		}
		m.pid = m.find()
		if m.pid != 0 && m.path == "" {
			m.path = exe(h, m.pid)
		}
		if m.path == "" {
			m.broken = fmt.Errorf("no process named kubelet runs: name its file with --program")
		}
	}
	if m.path == "" {
		m.path = m.st.Program
	}
	if m.pid != 0 {
		if args, err := cmdline(h, m.pid); err == nil {
			m.now = args[1:]
		}
	}
	if !o.systemd() {
		if m.line = m.now; m.line == nil && m.st.Swap != nil {
			m.line = m.st.Swap.Line
		}
		if m.line == nil && m.broken == nil {
			m.broken = fmt.Errorf("no kubelet runs, so nobody can tell what --start-command starts: start it first")
		}
	}
	return m, nil
}

// find is the process of the kubelet without systemd: the first that runs its program.
func (m *machine) find() int {
	for _, pid := range processes(m.h) {
		if e := exe(m.h, pid); e != "" && (e == m.path || m.path == "" && filepath.Base(e) == "kubelet") {
			return pid
		}
	}
	return 0
}

// judge fills the rows for a swap to a file, or for none if that is "".
func (m *machine) judge(ctx context.Context, file string, back bool) {
	if s := m.st.Swap; s.unfinished() {
		m.found("earlier swap", "HF510", "", fmt.Sprintf("a swap to %s was interrupted in the phase %q", s.To, s.Phase), "run kubectl-holdfast node swap or node back: it first starts the kubelet from before")
	}
	if !m.judgeUnit() {
		return
	}
	m.judgeProcess()
	var err error
	if m.old, err = m.program(ctx, m.path); err != nil {
		m.found("kubelet", "HF503", "", err.Error(), "the file that the unit starts must be a kubelet, no script around it")
		return
	}
	m.ok("kubelet", "%s is %s, sha256 %s", m.path, m.old.version.text, m.old.sum[:12])
	m.judgeLine(m.old)
	target := m.old
	if file != "" {
		if m.new, err = m.program(ctx, file); err != nil {
			m.found("new kubelet", "HF505", "", err.Error(), "give --new a kubelet of Holdfast that root may execute")
			return
		}
		target = m.new
		if !back && !target.version.holdfast {
			m.found("new kubelet", "HF505", "", fmt.Sprintf("%s is %s, no Holdfast", file, target.version.text), "give --new a kubelet of Holdfast; node back starts the kept kubelet")
		} else {
			m.ok("new kubelet", "%s is %s, sha256 %s", file, target.version.text, target.sum[:12])
		}
		if target.sum != m.old.sum {
			m.judgeLine(target)
		}
		m.judgePlace(file)
	}
	m.judgeKubeconfig()
	m.judgeSwapSpace(target.version)
	m.judgePropagation(target.version)
	m.judgeCgroup()
	m.judgeDisk(ctx, target.version, back)
	m.judgeSubpaths(target.version)
	m.judgeContainers(ctx)
}

func (m *machine) program(ctx context.Context, file string) (*program, error) {
	s, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !s.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", file)
	}
	p := &program{file: file}
	done := make(chan error, 1)
	go func() {
		var err error
		p.sum, err = sum(file)
		done <- err
	}()
	a, err := ask(ctx, m.h, file, m.line)
	if e := <-done; err == nil {
		err = e
	}
	p.answer = a
	return p, err
}

// judgeUnit tells whether what a start would start is known.
func (m *machine) judgeUnit() bool {
	if !m.o.systemd() {
		if m.broken != nil {
			m.found("unit", "HF503", "", m.broken.Error(), "")
			return false
		}
		m.found("unit", "HF509", "", "without systemd, what --start-command starts is not known before the start", "see yourself that it starts "+m.path+" with the flags of the process that runs")
	} else {
		if m.unit != nil && m.unit.needsReload {
			m.found("unit", "HF502", "", "the unit's files were changed and systemd has not loaded them", "systemctl daemon-reload, then check again")
			return false
		}
		if m.broken != nil {
			m.found("unit", "HF503", "", m.broken.Error(), "correct the unit; systemctl cat "+m.o.Unit+" shows it")
			return false
		}
		m.ok("unit", "%s starts %s", m.unit.name, m.path)
	}
	s, err := os.Lstat(m.path)
	base := filepath.Base(m.path)
	switch {
	case err != nil:
		m.found("layout", "HF503", "", err.Error(), "the unit must start a kubelet that is there")
	case base == "hyperkube" || len(m.line) > 0 && m.line[0] == "kubelet":
		m.found("layout", "HF503", "", m.path+" is hyperkube", "make the unit start a kubelet's own file: copy hyperkube to /usr/bin/kubelet and begin ExecStart= with that path in place of \""+m.path+" kubelet\"")
	case base == "docker" || base == "rkt":
		m.found("layout", "HF503", "", "the kubelet runs in a container", "this program swaps kubelets that systemd starts from a file")
	case s.Mode()&os.ModeSymlink != 0:
		to, _ := filepath.EvalSymlinks(m.path)
		m.found("layout", "HF503", "", m.path+" is a symbolic link", "make ExecStart= name the file: "+to)
	case script(m.path):
		m.found("layout", "HF503", "", m.path+" is a script", "make ExecStart= name the kubelet that the script starts, with its flags")
	case m.otherMounts():
		m.found("layout", "HF503", "", "the kubelet has a mount namespace of its own", "run this program where the kubelet runs")
	default:
		return true
	}
	return false
}

func script(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [2]byte
	_, err = io.ReadFull(f, b[:])
	return err == nil && string(b[:]) == "#!"
}

func (m *machine) otherMounts() bool {
	a, err := os.Readlink(filepath.Join(m.h.Proc, strconv.Itoa(m.pid), "ns/mnt"))
	b, err2 := os.Readlink(filepath.Join(m.h.Proc, "self/ns/mnt"))
	return err == nil && err2 == nil && a != b
}

// judgeProcess compares the process with what a start would start. A difference is allowed: the
// line of the unit is the one that is judged.
func (m *machine) judgeProcess() {
	if m.pid == 0 || m.now == nil {
		m.found("process", "HF501", "", "no kubelet runs", "start it and check again, or nothing can be compared")
		return
	}
	var says []string
	if e := exe(m.h, m.pid); e != "" && e != m.path {
		says = append(says, "the process runs "+e)
	}
	if names := differ(m.now, m.line); len(names) > 0 {
		says = append(says, "the unit now has another "+strings.Join(names, ", "))
	}
	if since := started(m.h, m.pid); m.unit != nil && since > 0 {
		for _, f := range m.unit.envFiles {
			if s, err := os.Stat(f); err == nil && s.ModTime().Unix() > since {
				says = append(says, f+" is newer than the process")
			}
		}
	}
	if len(says) > 0 {
		m.found("process", "HF501", "", strings.Join(says, "; "), "the swap starts what the unit says; if that is not meant, put the unit and its files right")
		return
	}
	m.ok("process", "%d runs with the unit's flags", m.pid)
}

// judgeLine says whether a kubelet takes the line.
func (m *machine) judgeLine(p *program) {
	check := "flags for " + p.version.text
	if bad := slices.Concat(p.refused, p.gates); len(bad) > 0 {
		m.found(check, "HF101", "", p.version.text+" does not take "+strings.Join(bad, ", "), "take it out; then the line is: ExecStart="+m.path+" "+p.takes.show())
	}
	if p.takes.standalone(p.version) {
		want := "--kubeconfig=FILE --require-kubeconfig=true"
		m.found(check, "HF102", "", p.version.text+" would run standalone and kill every pod: the line names no API server that it would use", "add "+want+" to the unit")
	} else if len(p.refused)+len(p.gates) == 0 {
		m.ok(check, "taken, and it talks to the API server")
	}
}

func (m *machine) judgeKubeconfig() {
	file := m.line.or("kubeconfig", "")
	if file == "" && m.line.is("require-kubeconfig", false) {
		file = "/var/lib/kubelet/kubeconfig"
	}
	if b, _ := m.line.value("bootstrap-kubeconfig"); file == "" || b != "" {
		return
	}
	if s, err := os.Stat(file); err != nil || s.Size() == 0 {
		m.found("kubeconfig", "HF508", "", file+" is not there, or empty", "put the node's kubeconfig there")
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
			m.found("place", "HF504", "", fmt.Sprintf("%s has %d MiB left, the swap needs %d", dir, s.FreeBytes>>20, need[dir]>>20+1), "make room")
		default:
			continue
		}
		return
	}
	m.ok("place", "%s and %s have room", dirs[0], m.h.Lib)
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
	return s.Dev
}

// judgeSwapSpace: 1.8 and later do not start on a machine with swap.
func (m *machine) judgeSwapSpace(v version) {
	b, err := os.ReadFile(filepath.Join(m.h.Proc, "swaps"))
	if err != nil || v.minor <= 7 {
		return
	}
	on := strings.Count(strings.TrimSpace(string(b)), "\n") > 0
	if on && m.line.is("fail-swap-on", m.line.is("experimental-fail-swap-on", true)) {
		m.found("swap space", "HF506", "", v.text+" does not start while the machine has swap on", "swapoff -a, or --experimental-fail-swap-on=false, which every release from 1.7 to 1.9 takes")
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
		m.found("propagation", "HF516", "", root+" is on a mount that is not shared: a kubelet from 1.8 on hides the volumes that 1.7 mounted", "mount --make-rshared / now and at each boot")
		return
	}
	m.ok("propagation", "shared")
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
	limits := m.line.or("eviction-hard", "")
	if _, ok := m.line.value("eviction-hard"); !ok {
		// The defaults; imagefs is new from 1.8.
		limits = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%"
		if v.minor >= 8 {
			limits += ",imagefs.available<15%"
		}
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
	for limit := range strings.SplitSeq(limits, ",") {
		signal, min, ok := strings.Cut(strings.TrimSpace(limit), "<")
		if !ok {
			continue
		}
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
		if need, ok := threshold(min, total); ok && total > 0 && float64(free) < need {
			low = append(low, fmt.Sprintf("%s of %s is below %s", signal, dir, min))
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
	m.found("disk", "HF105", level, strings.Join(low, "; ")+": "+v.text+" would evict pods", "make room: remove unused images, logs and files of pods")
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

var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(%|[KMGT]i?|k)?$`)

// threshold is an eviction threshold in bytes or inodes.
func threshold(s string, total uint64) (float64, bool) {
	g := quantity.FindStringSubmatch(strings.TrimSpace(s))
	if g == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(g[1], 64)
	unit := map[string]float64{"": 1, "%": float64(total) / 100, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}[g[2]]
	return n * unit, err == nil && unit > 0
}

func (m *machine) judgeSubpaths(v version) {
	list, err := subpaths(m.h, m.line.rootDir())
	switch {
	case err != nil:
		m.found("subPaths", "HF509", "", err.Error(), "")
	case len(list) > 0 && v.deletes():
		m.found("subPaths", "HF512", "", fmt.Sprintf("%d mounts of subPaths are there, and %s would delete the files behind them", len(list), v.text), "node back unmounts them before it starts that kubelet; start it in no other way")
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
