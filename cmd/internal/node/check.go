// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	Probe                     bool // also ask the HTTP probes of the node's pods
	packaged                  bool // the new kubelet has no file yet
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
			m.broken = fmt.Errorf("no kubelet runs, so it is not known what --start-command starts: start it first")
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
		m.found("earlier swap", "HF510", "", fmt.Sprintf("a swap to %s was interrupted in the phase %q", s.To, s.Phase), "run kubectl-holdfast node swap or node back: it first starts the previous kubelet")
	}
	if !m.judgeUnit() {
		return
	}
	m.judgeProcess()
	var err, newErr error
	asked := make(chan bool)
	go func() {
		if file != "" {
			m.new, newErr = m.program(ctx, file)
		}
		close(asked)
	}()
	m.old, err = m.program(ctx, m.path)
	<-asked
	if err != nil {
		m.found("kubelet", "HF503", "", err.Error(), "the file that the unit starts must be a kubelet, not a script that starts one")
		return
	}
	m.ok("kubelet", "%s is %s, sha256 %s", m.path, m.old.version.text, m.old.sum[:12])
	m.judgeLine("flags", m.old)
	target := m.old
	if file != "" {
		if newErr != nil {
			m.found("new kubelet", "HF505", "", newErr.Error(), "give --new a kubelet of Holdfast that root may execute")
			return
		}
		target = m.new
		if !back && !target.version.holdfast {
			m.found("new kubelet", "HF505", "", fmt.Sprintf("%s is %s, no Holdfast", file, target.version.text), "give --new a kubelet of Holdfast; node back starts the saved kubelet")
		} else {
			m.ok("new kubelet", "%s is %s, sha256 %s", file, target.version.text, target.sum[:12])
		}
		if target.sum != m.old.sum {
			m.judgeLine("flags, new", target)
		}
		m.judgePlace(file)
	} else if m.o.packaged {
		if target, err = ofTable(m.line); err != nil {
			m.found("flags, new", "HF509", finding.Stop, err.Error(), "")
			return
		}
		m.judgeLine("flags, new", target)
	}
	m.judgeKubeconfig()
	server := m.judgeServer(ctx, target.version)
	m.judgeAddresses(target.version, server)
	m.judgeCNI(target.version)
	m.judgeManifests(target.version)
	m.judgeSwapSpace(target.version)
	m.judgePropagation(target.version)
	m.judgeCgroup()
	m.judgeDriver(ctx)
	m.judgeDisk(ctx, target.version, back)
	m.judgeSubpaths(target.version)
	m.judgeSandboxes(target.version)
	m.judgeProbes(ctx, target.version)
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
		m.found("unit", "HF509", "", "without systemd, the program cannot find out what --start-command starts", "make sure that it starts "+m.path+" with the flags of the running process")
	} else {
		if m.unit != nil && m.unit.needsReload {
			m.found("unit", "HF502", "", "the unit's files were changed, but systemd has not loaded the changes", "systemctl daemon-reload, then check again")
			return false
		}
		if m.broken != nil {
			remedy := "correct the unit; systemctl cat " + m.o.Unit + " shows it"
			if strings.Contains(m.broken.Error(), "LoadState=masked") {
				remedy = "systemctl unmask " + m.o.Unit
			}
			m.found("unit", "HF503", "", m.broken.Error(), remedy)
			return false
		}
		m.ok("unit", "%s starts %s", m.unit.name, m.path)
	}
	s, err := os.Lstat(m.path)
	base := filepath.Base(m.path)
	switch {
	case err != nil:
		m.found("layout", "HF503", "", err.Error(), "the unit must start a kubelet that exists")
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
		m.found("process", "HF501", "", "no kubelet runs", "start it and check again; otherwise nothing can be compared")
		return
	}
	var says []string
	if e := exe(m.h, m.pid); e != "" && e != m.path {
		says = append(says, "the process runs "+e)
	}
	if names := differ(m.now, m.line); len(names) > 0 {
		says = append(says, "the unit now has other "+strings.Join(names, ", "))
	}
	if since := started(m.h, m.pid); m.unit != nil && since > 0 {
		for _, f := range m.unit.envFiles {
			if s, err := os.Stat(f); err == nil && s.ModTime().Unix() > since+startedWithin {
				says = append(says, f+" is newer than the process")
			}
		}
	}
	if len(says) > 0 {
		m.found("process", "HF501", "", strings.Join(says, "; "), "the swap starts what the unit says; if that is not intended, correct the unit and its files")
		return
	}
	m.ok("process", "%d runs with the unit's flags", m.pid)
}

// judgeLine says whether a kubelet takes the line.
func (m *machine) judgeLine(check string, p *program) {
	if bad := slices.Concat(p.refused, p.gates); len(bad) > 0 {
		m.found(check, "HF101", "", p.version.text+" does not accept "+strings.Join(bad, ", "), "remove it; then the line is: ExecStart="+m.path+" "+p.takes.show())
	}
	if p.takes.standalone(p.version) {
		want := "--kubeconfig=FILE --require-kubeconfig=true"
		m.found(check, "HF102", "", p.version.text+" would run standalone and kill every pod: the command line names no API server that it would use", "add "+want+" to the unit")
	} else if len(p.refused)+len(p.gates) == 0 {
		m.ok(check, "%s accepts them and uses the API server", p.version.text)
	}
}
