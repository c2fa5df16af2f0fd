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
	"syscall"
	"unsafe"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeletflags"
)

// The defaults of node keep: what the package kubelet replaces, and the file that lets it do so
// whatever is found.
const (
	packaged  = "/usr/bin/kubelet"
	skipCheck = "/etc/holdfast/skip-check"
)

// keepOptions are the flags of node keep.
type keepOptions struct{ replaces, skip string }

func keepCommand() *cobra.Command {
	s, k := &settings{}, keepOptions{}
	cmd := &cobra.Command{
		Use:   "keep",
		Short: "Save this machine's kubelet before a package replaces it",
		Long: `The package kubelet runs this command before the package is unpacked. The command checks the node
as node check does. The new kubelet does not exist on the node yet, so the command compares the
unit's flags with its own table of Holdfast's flags. If it finds a STOP, the command saves nothing,
and the package manager does not replace the kubelet. Otherwise the command saves the kubelet and
its unit as node swap does, and node back can restore them.

If the file /etc/holdfast/skip-check exists, the command writes a STOP of the check to the journal
and otherwise ignores it. But a kubelet that cannot be saved is still a STOP.`,
		Example: `  kubectl-holdfast node keep
  kubectl-holdfast node keep --replaces /usr/bin/kubelet -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.complete(false); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
			defer cancel()
			return runKeep(ctx, thisHost(s.lib), s.o, k, cmd.ErrOrStderr(), s.print(cmd))
		},
	}
	s.common(cmd)
	f := cmd.Flags()
	f.StringVar(&k.replaces, "replaces", packaged, "the file that the package replaces")
	f.StringVar(&k.skip, "skip-check", skipCheck, "file that makes keep ignore a STOP of the check")
	return cmd
}

// runKeep is node keep.
func runKeep(ctx context.Context, h *Host, o Options, k keepOptions, log io.Writer, print show) error {
	l, err := lock(h)
	if err == errLocked {
		return err
	}
	if err != nil {
		return print(nil, []finding.Finding{finding.Of("HF504", h.Lib, err.Error(), "free some space")}, untouched)
	}
	defer l.Close()
	m, err := look(ctx, h, o, log)
	if err != nil {
		return err
	}
	if !exists(k.replaces) && m.unit == nil {
		return print(nil, nil, "there is no kubelet at "+k.replaces+", and no unit: nothing to keep")
	}
	m.o.packaged = true
	m.judge(ctx, "", false)
	m.judgePackage(ctx, k.replaces)
	if m.stops() {
		if !exists(k.skip) {
			m.say("node keep: there is a STOP, so %s stays", k.replaces)
			return print(m.rows, m.findings(), untouched)
		}
		for _, f := range m.findings() {
			if f.Level == finding.Stop {
				m.say("%s exists, so this was ignored: %s %s: %s", k.skip, f.Code, f.Object, f.Text)
			}
		}
		m.rows = nil
	}
	if err := m.keepFile(ctx, k.replaces); err != nil {
		m.found("kept kubelet", "HF504", "", err.Error(), "free some space; the old kubelet stays, and "+k.skip+" does not override this")
		return print(m.rows, m.findings(), untouched)
	}
	text := "there was no stock kubelet to keep"
	if m.st.Original != nil {
		text = m.st.Original.Release + " is kept in " + m.st.Original.Dir
	}
	m.say("%s", text)
	// A question without an answer, such as another runtime than docker, is no reason for a package
	// to refuse: a STOP is.
	if err := print(m.rows, m.findings(), text); exit.Code(err) != exit.Failed {
		return err
	}
	return nil
}

// keepFile keeps what is at path, also what the check could not read. A stock kubelet that somebody
// installed after an earlier Holdfast is what node back goes to from then on.
func (m *machine) keepFile(ctx context.Context, path string) error {
	if !exists(path) {
		return nil
	}
	if m.old == nil || m.path != path {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		m.path = real
		if m.old, _ = m.program(ctx, real); m.old == nil || m.old.sum == "" {
			return fmt.Errorf("%s is not a readable file", real)
		}
		if m.old.version.text == "" {
			m.old.version.text = "unknown"
		}
	}
	original, err := m.keep(ctx)
	if err != nil || original == nil {
		return err
	}
	// node back goes by the path that the unit starts.
	m.st.Program, m.st.Original = path, original
	return m.st.write(m.h)
}

// ofTable is Holdfast's kubelet, of which only its table of flags is there.
func ofTable(line flags) (*program, error) {
	t, err := kubeletflags.Load()
	if err != nil {
		return nil, err
	}
	p := &program{answer: answer{takes: line, version: version{text: "Holdfast's kubelet", major: 1, minor: 9, patch: 11, holdfast: true}}}
	for _, name := range t.Parse(append([]string{"kubelet"}, line...)).Names {
		if !t.HasFlag(kubeletflags.Ours, name) {
			p.refused, p.takes = append(p.refused, "--"+name), p.takes.without(name)
		}
	}
	for _, gate := range line.gates() {
		if !t.HasGate(kubeletflags.Ours, gate) && !slices.Contains(p.gates, gate) {
			p.gates = append(p.gates, gate)
		}
	}
	p.takes = p.takes.withoutGates(p.gates)
	return p, nil
}

// judgePackage looks at what only a package manager does: it replaces one certain file, and starts
// the unit only where it is enabled.
func (m *machine) judgePackage(ctx context.Context, path string) {
	const check = "package"
	if m.path != "" && m.path != path {
		m.found(check, "HF530", "", fmt.Sprintf("the package replaces %s, and the unit starts %s", path, m.path), "make ExecStart= name "+path+", or use node swap, which replaces the file that the unit starts")
		return
	}
	if immutable(path) {
		m.found(check, "HF530", "", path+" is immutable", "chattr -i "+path)
		return
	}
	if m.o.systemd() && m.unit != nil {
		p, err := properties(ctx, m.h, m.o.Unit, "UnitFileState")
		if s := p["UnitFileState"]; err == nil && slices.Contains([]string{"disabled", "static", "masked", "masked-runtime", "bad"}, s) {
			m.found(check, "HF530", "", fmt.Sprintf("the unit is %s: the package manager stops the kubelet and does not start it again", s), "systemctl enable "+m.o.Unit+"; a unit that is static needs [Install] WantedBy=multi-user.target first")
			return
		}
	}
	m.ok(check, "%s is what the unit starts", path)
}

// immutable tells whether a file has the attribute i of chattr. A file system without attributes
// has none.
func immutable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	const getFlags, immutableFlag = 0x80086601, 0x10 // FS_IOC_GETFLAGS, FS_IMMUTABLE_FL
	var attributes uint32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getFlags, uintptr(unsafe.Pointer(&attributes)))
	return errno == 0 && attributes&immutableFlag != 0
}
