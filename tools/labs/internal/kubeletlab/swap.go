// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
)

// Swaps swaps the kubelet of a node without systemd as operators do: by node swap and node back of
// kubectl-holdfast, whose --stop-command and --start-command have the kit stop and start the kubelet.
// The node's kubelet must have the same flags in each release: Config.Unit is UnitFlags.
type Swaps struct {
	e               *labkit.Env
	n               *node.Node
	holdfast        string // the program
	program, dir    string
	now             kube.Program                    // what the next start starts, at another path
	between         func(ctx context.Context) error // after a stop; may be nil
	ask, answer     string                          // FIFOs: a word of a command, and what the kit says to it
	started         chan error                      // of the last start
	asked, toAnswer *os.File
}

// NewSwaps starts a copy of a kubelet, which is of the node alone. The node has none yet.
func NewSwaps(ctx context.Context, e *labkit.Env, n *node.Node, old kube.Program) (*Swaps, error) {
	s := &Swaps{e: e, n: n, now: old, dir: filepath.Join(n.Dir, "swap"), program: filepath.Join(n.Dir, "swap", "kubelet")}
	var err error
	if s.holdfast, err = e.Holdfast(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "cp", old.Path, s.program).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy %s: %w: %s", old.Path, err, out)
	}
	s.ask, s.answer = filepath.Join(s.dir, "ask"), filepath.Join(s.dir, "answer")
	for name, f := range map[string]**os.File{s.ask: &s.asked, s.answer: &s.toAnswer} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		// For both ends: no open waits for another.
		if *f, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
			return nil, err
		}
	}
	e.OnStop(n.Name+" swaps", func(context.Context) error { return errors.Join(s.asked.Close(), s.toAnswer.Close()) })
	go s.serve(ctx)
	return s, n.StartKubelet(ctx, s.kubelet())
}

func (s *Swaps) kubelet() kube.Program {
	p := s.now
	p.Path = s.program
	return p
}

// serve does what the commands ask for, until the FIFOs are closed. A start is answered at once:
// kubectl-holdfast itself waits until the kubelet is healthy.
func (s *Swaps) serve(ctx context.Context) {
	for in := bufio.NewScanner(s.asked); in.Scan(); {
		var err error
		switch in.Text() {
		case "stop":
			err = errors.Join(s.wait(), s.n.StopKubelet())
			if f := s.between; f != nil && err == nil {
				s.between = nil // once, whatever is started
				err = f(ctx)
			}
		case "start":
			s.started = make(chan error, 1)
			go func(to chan error) { to <- s.n.StartKubelet(ctx, s.kubelet()) }(s.started)
		}
		said := "ok"
		if err != nil {
			said = "failed"
			s.e.Logf("%s %s of the kubelet: %v", s.n.Name, in.Text(), err)
		}
		if _, err := fmt.Fprintln(s.toAnswer, said); err != nil {
			return
		}
	}
}

// wait waits until the last start has ended.
func (s *Swaps) wait() error {
	if s.started == nil {
		return nil
	}
	err := <-s.started
	s.started = nil
	return err
}

// Swapped is what node swap or node back has told.
type Swapped struct {
	// Command is "node swap" or "node back".
	Command string
	// Kept, Recreated and Gone containers, as the command counted them.
	Kept, Recreated, Gone int
}

// Swap runs node swap if p is a kubelet of Holdfast, and else node back to p, which was there before.
// settle is how long the command looks before it counts the containers. between is done when the old
// kubelet has stopped, and may be nil. It is an error if the command did not swap.
func (s *Swaps) Swap(ctx context.Context, p kube.Program, settle time.Duration, between func(context.Context) error) (*Swapped, error) {
	s.now = p
	if p.Variant == labkit.Ours {
		return s.run(ctx, settle, between, "swap", "--new", p.Path)
	}
	return s.run(ctx, settle, between, "back")
}

func (s *Swaps) run(ctx context.Context, settle time.Duration, between func(context.Context) error, args ...string) (*Swapped, error) {
	command := func(word string) string {
		return fmt.Sprintf("echo %s >%s && read -r said <%s && test $said = ok", word, s.ask, s.answer)
	}
	is := &Swapped{Command: "node " + args[0]}
	s.between = between
	args = append(append([]string{"node"}, args...), "--program", s.program, "--keep-in", filepath.Join(s.dir, "holdfast"),
		"--stop-command", command("stop"), "--start-command", command("start"), "--health-timeout", "1m", "--settle", settle.String())
	out, err := s.n.Output(ctx, s.holdfast, args...)
	s.e.Logf("kubectl-holdfast %s: %v\n%s", strings.Join(args, " "), err, out)
	if err := errors.Join(err, s.wait()); err != nil {
		return nil, fmt.Errorf("%s: %w", is.Command, err)
	}
	return is, is.count(out)
}

// counted is in the last lines of a command, which are wrapped.
var counted = regexp.MustCompile(`(?ms)^kept\s+(\d+),\s+recreated\s+(\d+)\b.*,\s+gone\s+(\d+):`)

// count reads the last line of a command that has swapped.
func (w *Swapped) count(out string) error {
	m := counted.FindStringSubmatch(out)
	if m == nil {
		return fmt.Errorf("%s did not count the containers: %s", w.Command, out)
	}
	for i, n := range []*int{&w.Kept, &w.Recreated, &w.Gone} {
		*n, _ = strconv.Atoi(m[i+1])
	}
	return nil
}

// Wrong says in what the command's counts are not what docker has, "" if they are.
func (w *Swapped) Wrong(before, after Snapshot) string {
	d := Compare(before, after, func(_ string, c Container) bool { return !c.Sandbox })
	if w.Kept != len(d.Kept) || w.Recreated != len(d.Recreated) || w.Gone != len(d.Gone) {
		return fmt.Sprintf("%s told of %d kept, %d recreated and %d gone containers; they are %d, %d and %d",
			w.Command, w.Kept, w.Recreated, w.Gone, len(d.Kept), len(d.Recreated), len(d.Gone))
	}
	return ""
}
