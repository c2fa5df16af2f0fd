// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
)

// stopTimeout bounds a stop; the old kubelet is started if it takes longer. The node's pods leave
// their Services 40 s after its last heartbeat, which may be 10 s old. Tests are in a hurry.
var stopTimeout = 15 * time.Second

// The names beside the program. The package manager and systemd know neither.
func (m *machine) staged() string   { return beside(m.path, "new") }
func (m *machine) previous() string { return beside(m.path, "previous") }

func beside(file, what string) string {
	return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".holdfast-"+what)
}

func (m *machine) say(format string, args ...any) {
	fmt.Fprintf(m.log, format+"\n", args...)
	journal(m.h, format, args...)
}

// phase writes the state before the step that it names is done.
func (m *machine) phase(p string) error {
	m.st.Swap.Phase = p
	journal(m.h, "phase %s", p)
	err := m.st.write(m.h)
	m.h.Step(p)
	return err
}

// recover ends what a program that was killed has begun: the kubelet from before is started.
func (m *machine) recover(ctx context.Context) error {
	if !m.st.Swap.unfinished() {
		return nil
	}
	s := m.st.Swap
	if m.path != m.st.Program { // the unit was changed meanwhile
		m.path = m.st.Program
	}
	if m.broken != nil || m.line == nil {
		m.line = s.Line
	}
	return m.restore(ctx, fmt.Sprintf("an earlier run ended in the phase %q", s.Phase))
}

// swapTo replaces the program by m.new, and returns what became of the containers. Before
// anything is touched, everything that needs room has been written. The error of a swap that was
// undone says so.
func (m *machine) swapTo(ctx context.Context, back bool, original *kept) (findings []finding.Finding, err error) {
	h, socket := m.h, m.line.dockerSocket()
	m.st.Program = m.path
	var before []container
	if again := m.st.Swap; m.new.sum == m.old.sum && again != nil && again.Phase == healthy && again.ToSum == m.new.sum {
		before = again.Before // of a run that ended before it compared
	} else if socket != "" {
		if before, err = running(ctx, h, socket); err != nil {
			return nil, err
		}
	}
	if original != nil {
		m.st.Original = original
	}
	hard := context.WithoutCancel(ctx)
	fail := func(why error) ([]finding.Finding, error) {
		f := finding.Of("HF511", m.path, fmt.Sprintf("%s: %v", m.new.version.text, why), "journalctl -u "+m.o.Unit+" says more")
		if err := m.restore(hard, why.Error()); err != nil {
			f.Text += "; " + err.Error()
		} else {
			f.Text += "; " + m.st.Swap.From + " runs again"
		}
		return []finding.Finding{f}, nil
	}
	if m.new.sum == m.old.sum && m.runsProgram() {
		m.say("%s is %s already", m.path, m.new.version.text)
		// A run that ended before it settled may have left a kubelet that does not stay.
		unsettled := m.st.Swap != nil && m.st.Swap.Phase == healthy && m.st.Swap.ToSum == m.new.sum
		if !unsettled {
			m.o.Settle = 0
			m.st.Swap = &swapState{Back: back, Phase: done, Began: time.Now().UTC(), From: m.old.version.text, FromSum: m.old.sum, To: m.new.version.text, ToSum: m.new.sum, Line: m.line, RootDir: m.line.rootDir()}
		}
		if err := m.st.write(h); err != nil {
			return nil, err
		}
		if err := m.wait(ctx, m.line, m.new.version); err != nil && unsettled {
			return fail(err)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		if findings, err = m.settle(ctx, before); errors.Is(err, errGone) && unsettled {
			return fail(err)
		}
		return findings, err
	}
	h.Step("stage")
	if err := m.stage(); err != nil {
		return []finding.Finding{finding.Of("HF504", m.path, err.Error(), "make room; nothing was touched")}, nil
	}
	m.st.Swap = &swapState{Back: back, Began: time.Now().UTC(), From: m.old.version.text, FromSum: m.old.sum, To: m.new.version.text, ToSum: m.new.sum, Line: m.line, RootDir: m.line.rootDir(), Before: before}
	if err := m.phase(prepared); err != nil {
		return []finding.Finding{finding.Of("HF504", stateFile(h), err.Error(), "make room; nothing was touched")}, nil
	}

	// From here to the start nothing interrupts the program but SIGKILL.
	began := time.Now()
	if err := m.phase(stopping); err != nil {
		return fail(err)
	}
	m.say("stop %s", m.old.version.text)
	if err := m.stop(hard); err != nil {
		m.kill(hard) // it had its time, and no start works before it has ended
		return fail(err)
	}
	h.Step("stopped")
	if m.new.version.deletes() {
		left, err := unmountSubpaths(h, m.line.rootDir())
		if err == nil && len(left) > 0 {
			err = errBusy
		}
		if err != nil {
			found, _ := fail(err)
			if errors.Is(err, errBusy) {
				for _, l := range left {
					f := finding.Of("HF512", m.path, l, "end that process, then run node back again").At(finding.Stop)
					found = append(found, f)
				}
			}
			return found, nil
		}
	}
	if err := m.phase(renaming); err != nil {
		return fail(err)
	}
	if err := os.Rename(m.staged(), m.path); err != nil {
		return fail(err)
	}
	h.Step("renamed")
	if err := syncDir(filepath.Dir(m.path)); err != nil {
		return fail(err)
	}
	if err := m.phase(starting); err != nil {
		return fail(err)
	}
	if err := m.start(hard); err != nil {
		return fail(err)
	}
	h.Step("started")
	if err := m.wait(hard, m.line, m.new.version); err != nil {
		return fail(err)
	}
	m.say("%s runs and is healthy, %.1f s after the stop began", m.new.version.text, time.Since(began).Seconds())
	if err := m.phase(healthy); err != nil {
		return fail(err)
	}
	if findings, err = m.settle(ctx, before); errors.Is(err, errGone) {
		return fail(err)
	}
	return findings, err
}

// runsProgram tells whether the process is of the file that is at the path now.
func (m *machine) runsProgram() bool {
	a, err := os.Stat(filepath.Join(m.h.Proc, strconv.Itoa(m.pid), "exe"))
	b, err2 := os.Stat(m.path)
	return m.pid != 0 && err == nil && err2 == nil && os.SameFile(a, b)
}

var (
	errBusy = errors.New("mounts of subPaths stay, and it would delete the files behind them")
	errGone = errors.New("its process ended while the node settled")
)

// stage puts the new kubelet beside the old one, and gives the old one a second name.
func (m *machine) stage() error {
	err := copyFile(m.new.file, m.staged(), 0o755)
	if err == nil {
		var s string
		if s, err = sum(m.staged()); err == nil && s != m.new.sum {
			err = fmt.Errorf("%s was changed while it was read", m.new.file)
		}
	}
	if err == nil {
		err = linkOrCopy(m.h, m.path, m.previous())
	}
	if err != nil {
		os.Remove(m.staged())
		os.Remove(m.previous())
	}
	return err
}

// settle waits until the kubelet has looked at each pod, and compares.
func (m *machine) settle(ctx context.Context, before []container) (findings []finding.Finding, err error) {
	d := m.o.Settle
	if d < 0 {
		// 5 requests a second, several for each pod, and 30 s for what is killed (the runbook).
		d = time.Minute + time.Duration((pods(before)+4)/5*2)*time.Second
	}
	pid, end, told := m.pid, time.Now().Add(d), time.Now()
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			m.say("interrupted: the kubelet runs, the containers were not compared to the end")
			end = time.Now()
		case <-time.After(min(5*m.h.Poll, max(time.Until(end), 0))):
		}
		if now, ok := m.process(context.WithoutCancel(ctx)); ok && now != pid {
			return nil, errGone
		}
		if time.Since(told) > 15*time.Second {
			told = time.Now()
			fmt.Fprintf(m.log, "settling: %.0f s left\n", time.Until(end).Seconds())
		}
	}
	socket := m.line.dockerSocket()
	text := "containers were not compared: the runtime is not docker on this machine"
	if socket != "" {
		after, err := running(context.WithoutCancel(ctx), m.h, socket)
		if err != nil {
			return []finding.Finding{finding.Of("HF509", "containers", err.Error(), "compare the pods' containers yourself")}, nil
		}
		c := compare(before, after)
		text = c.String()
		for _, r := range c.Recreated[:min(len(c.Recreated), 20)] {
			findings = append(findings, finding.Of("HF514", r.String(), "another container runs than before the swap", "the table of the runbook says whether to go on"))
		}
	}
	if !m.st.Swap.Back {
		findings = append(findings, m.judgePredecessor(context.WithoutCancel(ctx))...)
	}
	if err := m.phase(done); err != nil {
		return findings, err
	}
	os.Remove(m.previous())
	journal(m.h, "%s", text)
	m.result = text
	return findings, nil
}

// restore starts the kubelet from before. An error says which one runs instead, if any.
func (m *machine) restore(ctx context.Context, why string) error {
	s, h := m.st.Swap, m.h
	s.Why = why
	m.say("%s: put %s back", why, s.From)
	// No room for the state must not leave a node without a kubelet.
	if err := m.phase(restoring); err != nil {
		m.say("%v", err)
	}
	prev, err := os.Stat(m.previous())
	now, err2 := os.Stat(m.path)
	replaced := err == nil && (err2 != nil || !os.SameFile(prev, now))
	var busy []string
	if replaced {
		if err := m.stop(ctx); err != nil {
			m.kill(ctx)
		}
		if v, err := parseVersion("Kubernetes " + s.From); err == nil && v.deletes() {
			if busy, err = unmountSubpaths(h, s.RootDir); err != nil {
				busy = []string{err.Error()}
			}
		}
		if len(busy) == 0 {
			h.Step("restore")
			if err := os.Rename(m.previous(), m.path); err != nil {
				m.say("%v", err)
			}
		}
	} else {
		os.Remove(m.previous())
	}
	os.Remove(m.staged())
	h.Step("restart")
	if err := m.start(ctx); err != nil {
		m.say("%v", err)
	}
	v, _ := parseVersion("Kubernetes " + s.From)
	if err := m.wait(ctx, m.line, v); err != nil {
		return fmt.Errorf("and the kubelet at %s does not run well either: %w", m.path, err)
	}
	if len(busy) > 0 {
		return fmt.Errorf("%s stays: before %s may start, these must be unmounted: %s", s.To, s.From, strings.Join(busy, ", "))
	}
	return m.phase(restored)
}

func (m *machine) command(ctx context.Context, bound time.Duration, shell string, systemctl ...string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	name, args := "systemctl", systemctl
	if !m.o.systemd() {
		name, args = "sh", []string{"-c", shell}
	}
	if out, err := m.h.Run(ctx, name, args...); err != nil {
		if !m.o.systemd() {
			return fmt.Errorf("%s command: %w", systemctl[0], err) // what it prints may be anything
		}
		return fmt.Errorf("systemctl %s: %w %s", strings.Join(args, " "), err, finding.Clean(strings.TrimSpace(out)))
	}
	return nil
}

// stop stops the kubelet within stopTimeout.
func (m *machine) stop(ctx context.Context) error {
	end := time.Now().Add(stopTimeout)
	if err := m.command(ctx, stopTimeout, m.o.StopCommand, "stop", m.o.Unit); err != nil {
		return err
	}
	for {
		if pid, ok := m.process(ctx); ok && pid == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the kubelet did not stop within %s", stopTimeout)
		}
		time.Sleep(m.h.Poll)
	}
}

// kill ends a kubelet that does not stop.
func (m *machine) kill(ctx context.Context) {
	if m.o.systemd() {
		_ = m.command(ctx, unitTimeout, "", "kill", "-s", "KILL", m.o.Unit)
	}
}

func (m *machine) start(ctx context.Context) error {
	if m.o.systemd() {
		// A unit that failed often is not started any more.
		_ = m.command(ctx, unitTimeout, "", "reset-failed", m.o.Unit)
	}
	return m.command(ctx, stopTimeout, m.o.StartCommand, "start", m.o.Unit)
}

// process is the kubelet's process now, 0 if there is none; not ok if that cannot be told.
func (m *machine) process(ctx context.Context) (pid int, ok bool) {
	if !m.o.systemd() {
		return m.find(), true
	}
	p, err := properties(ctx, m.h, m.o.Unit, "MainPID")
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(p["MainPID"])
	return pid, err == nil
}

// wait waits until a kubelet runs that is the program, with the line, and answers /healthz. One
// that ends, or has another line, is an error at once.
func (m *machine) wait(ctx context.Context, line flags, v version) error {
	end := time.Now().Add(m.o.HealthTimeout)
	first, why := 0, errors.New("it has not started")
	for {
		pid, ok := m.process(ctx)
		switch {
		case !ok:
			why = errors.New("systemctl show does not answer")
		case first != 0 && pid != first:
			return fmt.Errorf("it ended soon after its start")
		case pid != 0:
			running, err := os.Stat(filepath.Join(m.h.Proc, strconv.Itoa(pid), "exe"))
			file, err2 := os.Stat(m.path)
			args, err3 := cmdline(m.h, pid)
			if err := errors.Join(err, err2, err3); err != nil {
				why = err
				break
			}
			if !os.SameFile(running, file) {
				why = fmt.Errorf("process %d is another program", pid) // systemd has not executed it yet
				break
			}
			first = pid
			if flags(args[1:]).standalone(v) {
				return errors.New("it runs standalone")
			}
			if names := differ(args[1:], line); len(names) > 0 {
				return fmt.Errorf("it runs with another %s than the unit has", strings.Join(names, ", "))
			}
			if why = m.healthz(ctx, line); why == nil {
				m.pid = pid
				return nil
			}
		case m.o.systemd() && first == 0:
			if p, err := properties(ctx, m.h, m.o.Unit, "ActiveState", "SubState"); err == nil && (p["ActiveState"] == "failed" || p["SubState"] == "auto-restart") {
				return fmt.Errorf("it ended at its start")
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("it is not healthy after %s: %w", m.o.HealthTimeout, why)
		}
		time.Sleep(m.h.Poll)
	}
}

// local is the URL of one of the kubelet's ports, "" if the port is off.
func local(line flags, address, addressDefault, port, portDefault, path string) string {
	host, p := line.or(address, addressDefault), line.or(port, portDefault)
	if p == "0" {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, p) + path
}

func (m *machine) healthz(ctx context.Context, line flags) error {
	url := local(line, "healthz-bind-address", "127.0.0.1", "healthz-port", "10248", "/healthz")
	if url == "" {
		return nil // the unit has switched it off
	}
	b, err := m.h.Get(ctx, "", url)
	if err == nil && strings.TrimSpace(string(b)) != "ok" {
		err = errors.New("/healthz is not ok")
	}
	return err
}

var predecessor = regexp.MustCompile(`(?m)^holdfast_predecessor_info\{release="([^"]*)",source="[^"]*"\} 1$`)

// judgePredecessor asks Holdfast which kubelet it takes for the one before it.
func (m *machine) judgePredecessor(ctx context.Context) []finding.Finding {
	const remedy = "kubectl-holdfast predecessor --root-dir DIR shows what is recorded; write the override if it is wrong"
	found := func(format string, args ...any) []finding.Finding {
		return []finding.Finding{finding.Of("HF515", "predecessor", fmt.Sprintf(format, args...), remedy)}
	}
	url := local(m.line, "address", "0.0.0.0", "read-only-port", "10255", "/metrics")
	if url == "" {
		return found("the kubelet's read-only port is off, so holdfast_predecessor_info was not read")
	}
	b, err := m.h.Get(ctx, "", url)
	if err != nil {
		return found("%s: %v", url, err)
	}
	g := predecessor.FindSubmatch(b)
	if g == nil {
		return found("holdfast_predecessor_info is missing in /metrics")
	}
	said := string(g[1])
	m.say("the kubelet before it is, by holdfast_predecessor_info, %s", said)
	if k := m.st.Original; k != nil {
		// The kubelet may know only "1.7".
		if want := strings.TrimPrefix(k.Release, "v"); want != said && !strings.HasPrefix(want, said+".") {
			return found("it names %s, and %s was kept", said, k.Release)
		}
	}
	return nil
}

// show prints the check's rows, or findings with the sum before them.
type show func(rows []row, findings []finding.Finding, sum string) error

// run is node swap, or node back.
func run(ctx context.Context, h *Host, o Options, back bool, log io.Writer, print show) error {
	if !o.DryRun {
		l, err := lock(h)
		if errors.Is(err, errLocked) {
			return err
		}
		if err != nil {
			return print(nil, []finding.Finding{finding.Of("HF504", h.Lib, err.Error(), "make room, or name another folder with --keep-in")}, untouched)
		}
		defer l.Close()
	}
	m, err := look(ctx, h, o, log)
	if err != nil {
		return err
	}
	if m.st.Swap.unfinished() && !o.DryRun {
		if err := m.recover(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if m, err = look(ctx, h, o, log); err != nil {
			return err
		}
	}
	file := o.New
	if back {
		if file, err = m.original(); err != nil {
			m.found("kept kubelet", "HF505", "", err.Error(), "put the old kubelet's file, from its package, in the place of Holdfast as the appendix of the runbook says")
			return print(m.rows, m.findings(), untouched)
		}
	}
	m.judge(ctx, file, back)
	if m.stops() {
		return print(m.rows, m.findings(), untouched)
	}
	if o.DryRun {
		return print(m.rows, m.findings(), "dry run: "+untouched)
	}
	var original *kept
	if !back {
		if original, err = m.keep(ctx); err != nil {
			m.found("kept kubelet", "HF504", "", err.Error(), "make room, or name another folder with --keep-in")
			return print(m.rows, m.findings(), untouched)
		}
	}
	findings, err := m.swapTo(ctx, back, original)
	if err != nil {
		return err
	}
	return print(nil, findings, m.result)
}

const untouched = "nothing was touched"

// original is the kept kubelet's file, if it is still what it was.
func (m *machine) original() (string, error) {
	k := m.st.Original
	if k == nil {
		return "", fmt.Errorf("no kubelet is kept in %s: node swap did not bring the one that runs", m.h.Lib)
	}
	s, err := sum(k.file())
	if err != nil {
		return "", err
	}
	if s != k.Sum {
		return "", fmt.Errorf("%s is not what was kept: its SHA-256 is %s, not %s", k.file(), s[:12], k.Sum[:12])
	}
	return k.file(), nil
}

// keep keeps the kubelet before Holdfast: the program, or what an earlier way of swapping left
// beside it. nil: there is nothing to keep, or it is kept already.
func (m *machine) keep(ctx context.Context) (*kept, error) {
	file, p := m.path, m.old
	if p.version.holdfast {
		p = nil
		for _, suffix := range []string{".before-holdfast", ".stock"} {
			f := m.path + suffix
			if m.st.Original != nil || !exists(f) {
				continue
			}
			if q, err := m.program(ctx, f); err == nil && !q.version.holdfast {
				m.say("%s is kept as the kubelet before Holdfast", f)
				file, p = f, q
				break
			}
		}
	}
	if p == nil {
		return nil, nil
	}
	k := kept{Release: p.version.text, Sum: p.sum, RootDir: m.line.rootDir(), Line: m.line, Time: time.Now().UTC()}
	var files, envFiles []string
	if m.unit != nil {
		files, envFiles = m.unit.files, m.unit.envFiles
	}
	return keep(m.h, file, k, files, envFiles)
}
