// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command measure-build prints the measured rows of docs/design/build.md, from a
// copy of the last commit in a temporary folder, on two cores. With -cold the
// build cache is an empty one; otherwise the user's. Run it on a machine that
// does nothing else: the load before each step is in its row.
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

func main() {
	cold := flag.Bool("cold", false, "begin with an empty build cache")
	flag.Parse()
	err := run(*cold, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure-build:", err)
	}
	os.Exit(exit.Code(err))
}

func run(cold bool, args []string) (err error) {
	if len(args) > 0 {
		return exit.Usagef("unexpected argument %q: the only one is -cold", args[0])
	}
	root, err := base.FindRoot(".")
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "measure-build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	m := &measurement{dir: filepath.Join(tmp, "checkout"), env: os.Environ(), out: os.Stdout}
	if out, err := exec.Command("git", "clone", "--quiet", "--shared", root, m.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w\n%s", err, out)
	}
	with := ""
	if cold {
		m.env = append(m.env, "GOCACHE="+filepath.Join(tmp, "gocache"))
		with = " and build cache"
	}
	// The measured commands, and what they start, run on two cores. That is a
	// property of the thread which starts them.
	runtime.LockOSThread()
	two := unix.CPUSet{}
	two.Set(0)
	two.Set(1)
	if err := unix.SchedSetaffinity(0, &two); err != nil {
		return fmt.Errorf("take two cores: %w", err)
	}
	fmt.Println("| what | time | peak memory | command | load before |\n|---|---|---|---|---|")
	for _, step := range []struct{ label, edit, target string }{
		{"tool, empty `_output`" + with, "", "tool"},
		{"`make`, empty `_output`" + with, "", ""},
		{"`make`, nothing to do", "", ""},
		{"one line of an overlay file of the kubelet", "pkg/kubelet/prober/holdfast_readiness_across_restart.go", ""},
		{"one line of an overlay file of client-go, which nearly everything imports", "staging/src/k8s.io/client-go/tools/cache/rvcursor/cursor.go", ""},
	} {
		if step.edit != "" {
			if err := m.oneLine(step.edit); err != nil {
				return err
			}
		}
		if err := m.measure(step.label, strings.Fields("make "+step.target)...); err != nil {
			return err
		}
	}
	return m.binaries()
}

// measurement is a checkout in which commands are measured.
type measurement struct {
	dir string
	env []string
	out io.Writer
}

// measure runs a command and prints its wall time, and the largest sum of the
// resident sets of all its processes, looked at twice a second.
func (m *measurement) measure(label string, command ...string) error {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = m.dir, m.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // its processes are known by their session
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	peak := int64(0)
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", label, err, out.Bytes())
			}
			fmt.Fprintf(m.out, "| %s | %.1f s | %d MiB | `%s` | %s |\n", label, time.Since(start).Seconds(), peak>>20, strings.Join(command, " "), strings.Fields(string(load))[0])
			return nil
		case <-time.After(500 * time.Millisecond):
			peak = max(peak, resident(cmd.Process.Pid))
		}
	}
}

// resident is the sum of the resident sets of a session's processes, in bytes.
func resident(session int) int64 {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	sum := int64(0)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		// The fields behind the name, which may have blanks in it: state is field 3
		// of proc(5), session 6, rss 24 (pages).
		_, rest, _ := strings.Cut(string(raw), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 22 || fields[3] != strconv.Itoa(session) {
			continue
		}
		if pages, err := strconv.ParseInt(fields[21], 10, 64); err == nil {
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}

// oneLine adds an exported variable to an overlay file. A change that leaves the
// compiled package as it is would be no change to its importers.
func (m *measurement) oneLine(file string) error {
	f, err := os.OpenFile(filepath.Join(m.dir, file), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\nvar Measured%d = 1\n", rand.Uint32())
	return errors.Join(err, f.Close())
}

// binaries prints the sizes of the product's binaries and how many modules they
// link. Replaced modules count as one.
func (m *measurement) binaries() error {
	b, err := base.LoadDefault(m.dir)
	if err != nil {
		return err
	}
	for _, c := range [][]string{{"git", "checkout", "--quiet", "."}, {"make"}, {"_output/tools/holdfast", "build", "--variant", "stock"}} {
		cmd := exec.Command(c[0], c[1:]...)
		if strings.Contains(c[0], "/") {
			cmd = exec.Command(filepath.Join(m.dir, c[0]), c[1:]...)
		}
		cmd.Dir, cmd.Env = m.dir, m.env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(c, " "), err, out)
		}
	}
	fmt.Println("\n| binary | bytes, stock | bytes, ours | modules linked, stock | ours |\n|---|---|---|---|---|")
	for _, n := range b.BinaryNames(true) {
		var sizes, modules string
		for _, v := range []base.Variant{base.Stock, base.Ours} {
			file := filepath.Join(b.BinDir(v), n)
			var info fs.FileInfo
			if info, err = os.Stat(file); err != nil {
				return err
			}
			linked, err := buildinfo.ReadFile(file)
			if err != nil {
				return err
			}
			sizes += fmt.Sprintf(" %d |", info.Size())
			modules += fmt.Sprintf(" %d |", len(linked.Deps))
		}
		fmt.Printf("| %s |%s%s\n", n, sizes, modules)
	}
	return nil
}
