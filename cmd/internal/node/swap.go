// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/predecessor"
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

// whereLog says where to look for what a kubelet has to say.
func (m *machine) whereLog() string {
	if m.unit == nil {
		return "the kubelet's log says more"
	}
	return "the kubelet's log says more: journalctl -u " + m.o.Unit + ", or where the unit's StandardOutput= writes it"
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
		f := finding.Of("HF511", m.path, fmt.Sprintf("%s: %v", m.new.version.text, why), m.whereLog())
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
		return []finding.Finding{finding.Of("HF504", m.path, err.Error(), "free some space; nothing was changed")}, nil
	}
	m.st.Swap = &swapState{Back: back, Began: time.Now().UTC(), From: m.old.version.text, FromSum: m.old.sum, To: m.new.version.text, ToSum: m.new.sum, Line: m.line, RootDir: m.line.rootDir(), Before: before}
	if err := m.phase(prepared); err != nil {
		return []finding.Finding{finding.Of("HF504", stateFile(h), err.Error(), "free some space; nothing was changed")}, nil
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
	if err := atomicfile.SyncDir(filepath.Dir(m.path)); err != nil {
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
	errBusy = errors.New("mounts of subPaths stay, and it would delete the files in them")
	errGone = errors.New("its process ended while the node settled")
)

// stage puts the new kubelet beside the old one, and gives the old one a second name.
func (m *machine) stage() error {
	err := atomicfile.Copy(m.new.file, m.staged(), 0o755)
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
		// 5 requests a second, several for each pod, and 30 s for what is killed.
		d = time.Minute + time.Duration((pods(before)+4)/5*2)*time.Second
	}
	pid, end, told := m.pid, time.Now().Add(d), time.Now()
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			m.say("interrupted: the kubelet runs, but not all containers were compared")
			end = time.Now()
		case <-time.After(min(5*m.h.Poll, max(time.Until(end), 0))):
		}
		if now, ok := m.process(context.WithoutCancel(ctx)); ok && now != pid {
			return nil, errGone
		}
		if time.Since(told) > 15*time.Second {
			told = time.Now()
			fmt.Fprintf(m.log, "settling: %.0f s left\n", max(time.Until(end).Seconds(), 0))
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
		for _, r := range c.Recreated[:min(len(c.Recreated), maxNamed)] {
			findings = append(findings, finding.Of("HF514", r.String(), "another container runs now than before the swap", "kubectl-holdfast verify --plan says whether forecast had predicted it"))
		}
		for _, g := range c.Gone[:min(len(c.Gone), maxNamed)] {
			findings = append(findings, finding.Of("HF527", g.String(), "no container runs in its place", "look at its pod: if it has failed, see HF105 and HF206"))
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

// maxNamed is how many containers that did not stay are named.
const maxNamed = 20

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
		return fmt.Errorf("and the kubelet at %s does not become healthy either: %w", m.path, err)
	}
	if len(busy) > 0 {
		return fmt.Errorf("%s stays: before %s may start, these must be unmounted: %s", s.To, s.From, strings.Join(busy, ", "))
	}
	return m.phase(restored)
}

// judgePredecessor asks Holdfast which kubelet it takes for the one before it.
func (m *machine) judgePredecessor(ctx context.Context) []finding.Finding {
	const remedy = "kubectl-holdfast predecessor --root-dir DIR shows the recorded release; write the override if it is wrong"
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
	p, err := predecessor.FromMetrics("", b)
	if err != nil {
		return found("holdfast_predecessor_info is missing in /metrics")
	}
	said := p.Release
	m.say("kubelet before Holdfast, according to holdfast_predecessor_info: %s", said)
	if k := m.st.Original; k != nil {
		// The kubelet may know only "1.7".
		if want := strings.TrimPrefix(k.Release, "v"); want != said && !strings.HasPrefix(want, said+".") {
			return found("it names %s, but the saved kubelet is %s", said, k.Release)
		}
	}
	return nil
}
