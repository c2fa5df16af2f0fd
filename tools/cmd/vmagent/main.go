// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vmagent is the first process of a virtual machine of a lab: it mounts what a Linux
// has mounted, loads the kernel's modules that /modules names, a path a line, gives eth0 the
// address of the kernel's option holdfast.addr, and then runs what it is sent to Port: one
// connection, one Request, one Answer, both JSON. It is on a lab's own network only.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/vmagent"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vmagent: it is the first process of a virtual machine, and nothing else")
		os.Exit(1)
	}
	err := serve()
	// What ends process 1 ends the machine; the console has the reason.
	fmt.Fprintln(os.Stderr, "vmagent:", err)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func serve() error {
	for _, m := range [][3]string{{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"devtmpfs", "/dev", "devtmpfs"}, {"tmpfs", "/run", "tmpfs"}, {"tmpfs", "/tmp", "tmpfs"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m[0], m[1], m[2], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	// bash's <(…) and the like.
	if err := os.Symlink("/proc/self/fd", "/dev/fd"); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	list, err := os.ReadFile("/modules")
	if err != nil {
		return err
	}
	for _, m := range strings.Fields(string(list)) {
		if err := load(m); err != nil {
			return fmt.Errorf("module %s: %w", m, err)
		}
	}
	options, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	for _, o := range strings.Fields(string(options)) {
		addr, ok := strings.CutPrefix(o, "holdfast.addr=")
		if !ok {
			continue
		}
		for _, words := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", addr, "dev", "eth0"}, {"link", "set", "eth0", "up"}} {
			if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", strings.Join(words, " "), err, out)
			}
		}
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", vmagent.Port))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var r vmagent.Request
			if json.NewDecoder(c).Decode(&r) == nil {
				_ = json.NewEncoder(c).Encode(run(r))
			}
		}()
	}
}

func load(module string) error {
	f, err := os.Open(module)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func run(r vmagent.Request) vmagent.Answer {
	out, err := exec.Command("bash", "-c", r.Shell).CombinedOutput()
	var ee *exec.ExitError
	switch {
	case err == nil:
		return vmagent.Answer{Output: string(out)}
	case errors.As(err, &ee):
		return vmagent.Answer{Output: string(out), Code: ee.ExitCode()}
	}
	return vmagent.Answer{Output: err.Error(), Code: 127}
}
