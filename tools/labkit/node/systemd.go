// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// Values of Config.CgroupDriver.
const (
	Cgroupfs = "cgroupfs"
	Systemd  = "systemd"
)

const (
	// SystemdPackage has systemdPath.
	SystemdPackage = "systemd"
	systemdPath    = "/lib/systemd/systemd"
	// systemdSocket is where runc and a kubelet without a system bus ask systemd,
	// systemdOwn where systemd listens once systemdRelay has come between.
	systemdSocket = "/run/systemd/private"
	systemdOwn    = "/run/systemd/private.own"
	// systemdAgent is where systemd hears of cgroups that have become empty.
	systemdAgent = "/run/systemd/cgroups-agent"
)

func (c Config) cgroupDriver() (string, error) {
	switch c.CgroupDriver {
	case "", Cgroupfs:
		return Cgroupfs, nil
	case Systemd:
		return Systemd, nil
	}
	return "", fmt.Errorf("Config.CgroupDriver %q: want %q or %q", c.CgroupDriver, Cgroupfs, Systemd)
}

// PIDNamespace is the file of the PID namespace of the node's programs, "" for the
// machine's. systemd is process 1 of a namespace of its own, and the PIDs that
// runc and a kubelet tell it must mean the same there.
func (n *Node) PIDNamespace() string {
	if n.cfg.CgroupDriver != Systemd {
		return ""
	}
	return fmt.Sprintf("/proc/%d/ns/pid", n.holder.Pid)
}

// combinedOutput is cmd.CombinedOutput in the node's PID namespace.
func (n *Node) combinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := process.StartCmd(cmd, n.PIDNamespace()); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return out.Bytes(), err
}

// mountForSystemd is for nodeHold, before it mounts over files of /proc.
func (m *mounter) mountForSystemd(hs []machine.Hierarchy) {
	found := false
	for _, h := range hs {
		found = found || h.Dir == "systemd" && strings.Contains(","+h.Options+",", ",name=systemd,")
	}
	if m.err == nil && !found {
		m.err = fmt.Errorf("no cgroup v1 hierarchy name=systemd in %s/systemd: systemd cannot run here", machine.CgroupRoot)
	}
	m.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	// systemd makes links in /dev, which is the computer's own, and writes to the
	// console and the kernel's log.
	m.mount("/dev", "/dev", "", unix.MS_BIND|unix.MS_REC, "")
	m.mount("", "/dev", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	m.mount("/dev/null", "/dev/console", "", unix.MS_BIND, "")
	m.mkdir("/run/systemd/system")
	if m.err == nil {
		// Nothing else is started: no journal, no udev, no login.
		m.err = os.WriteFile("/run/systemd/system/lab.target", []byte("[Unit]\nDescription=node of a lab\nDefaultDependencies=no\n"), 0o644)
	}
}

// execSystemd turns the holder of a node's namespaces into systemd. It sees the
// cgroups of this node only, and the v1 hierarchies only: a v2 hierarchy that is
// mounted beside them is not in this node's cgroup.
func execSystemd() error {
	if os.Getpid() != 1 {
		return errors.New("systemd must be process 1")
	}
	args := []string{systemdPath, "--system", "--unit=lab.target", "--log-target=null",
		"systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1"}
	return fmt.Errorf("exec %s: %w", systemdPath, syscall.Exec(systemdPath, args, append(os.Environ(), "container=holdfast-lab")))
}

// startRelay waits for systemd and comes between it and its callers.
func (n *Node) startRelay(ctx context.Context) error {
	root := fmt.Sprintf("/proc/%d/root", n.holder.Pid)
	if err := wait.Until(ctx, "systemd of "+n.Name+" listens", 15*time.Second, func(context.Context) (bool, error) {
		_, err := os.Stat(root + systemdSocket)
		return err == nil, err
	}); err != nil {
		return err
	}
	_, err := n.in.Start(ctx, process.Process{Name: n.Name + "-systemd-relay", Path: process.Self(), Args: []string{hookRelay}, In: n,
		Health: func(context.Context) error {
			if _, err := os.Stat(root + systemdOwn); err != nil {
				return err
			}
			c, err := net.Dial("unix", root+systemdSocket)
			if err == nil {
				c.Close()
			}
			return err
		}})
	return err
}

// systemdRelay takes systemd's socket and passes everything on, both ways, but
// for what amendMessage changes.
func systemdRelay() error {
	if err := os.Rename(systemdSocket, systemdOwn); err != nil {
		return err
	}
	l, err := net.Listen("unix", systemdSocket)
	if err != nil {
		return err
	}
	go func() {
		for ; ; time.Sleep(100 * time.Millisecond) {
			if err := tellEmpty(filepath.Join(machine.CgroupRoot, "systemd"), systemdAgent); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			s, err := net.Dial("unix", systemdOwn)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			defer s.Close()
			go func() {
				_, _ = io.Copy(c, s)
				c.Close()
			}()
			if err := relayMessages(s, c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}

// tellEmpty tells systemd which services below root have no process any more, in the words of the
// kernel's release agent: one program for the whole computer, which a node with cgroup v1 cannot
// have. Without it systemd now and then waits TimeoutStopSec for a service that has ended.
func tellEmpty(root, agent string) error {
	files, err := filepath.Glob(filepath.Join(root, "system.slice/*.service/cgroup.procs"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err != nil || len(b) > 0 {
			continue // it is gone, or has processes
		}
		c, err := net.Dial("unixgram", agent)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c, strings.TrimPrefix(filepath.Dir(file), root))
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// maxMessage is the D-Bus specification's longest message, 128 MiB.
const maxMessage = 128 << 20

// relayMessages copies what a D-Bus client sends: lines of authentication, the
// last of which is BEGIN, then messages (D-Bus specification, "Message Format").
func relayMessages(to io.Writer, from io.Reader) error {
	r := bufio.NewReader(from)
	for line := ""; line != "BEGIN\r\n"; {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			return err
		}
		if _, err := io.WriteString(to, line); err != nil {
			return err
		}
	}
	for {
		head := make([]byte, 16)
		if _, err := io.ReadFull(r, head); err != nil {
			return err
		}
		if head[0] != 'l' {
			return fmt.Errorf("D-Bus message with byte order %q: only little endian is known", head[0])
		}
		body, fields := uint64(binary.LittleEndian.Uint32(head[4:])), uint64(binary.LittleEndian.Uint32(head[12:]))
		fields = (fields + 7) &^ 7
		if fields+body > maxMessage {
			return fmt.Errorf("D-Bus message of %d bytes", fields+body)
		}
		rest := make([]byte, fields+body)
		if _, err := io.ReadFull(r, rest); err != nil {
			return err
		}
		amendMessage(rest[:fields], rest[fields:])
		if _, err := to.Write(append(head, rest...)); err != nil {
			return err
		}
	}
}

// A property "Delegate" that is true, and one that asks for nothing and has as
// many bytes: name, signature, padding to 4, value.
var (
	delegateTrue = []byte("\x08\x00\x00\x00Delegate\x00\x01b\x00\x01\x00\x00\x00")
	addRefFalse  = []byte("\x06\x00\x00\x00AddRef\x00\x01b\x00\x00\x00\x00\x00\x00\x00")
)

// amendMessage drops Delegate=true from a StartTransientUnit of a slice. Kubelets
// of 1.7 to 1.9 ask for that, systemd 236 and older let them, and newer ones refuse
// the whole call: "Delegation not available for unit type" (kubernetes#61474).
func amendMessage(fields, body []byte) {
	if !bytes.Contains(fields, []byte("StartTransientUnit\x00")) || len(body) < 4 {
		return
	}
	n := uint64(binary.LittleEndian.Uint32(body))
	if 4+n > uint64(len(body)) || !strings.HasSuffix(string(body[4:4+n]), ".slice") {
		return
	}
	if i := bytes.Index(body, delegateTrue); i >= 0 {
		copy(body[i:], addRefFalse)
	}
}

// SystemdScopes reads from the cgroups which containers are in a scope of systemd.
// Keys are docker's IDs, values the path of the scope's slice, like
// "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice".
func (n *Node) SystemdScopes() map[string]string {
	top := filepath.Join(machine.CgroupRoot, "systemd", n.cgroup)
	scopes := map[string]string{}
	for _, d := range machine.Cgroups(n.cgroup) {
		rel, err := filepath.Rel(top, d)
		id, ok := strings.CutPrefix(filepath.Base(d), "docker-")
		if id, isScope := strings.CutSuffix(id, ".scope"); err == nil && ok && isScope && !strings.HasPrefix(rel, "..") {
			scopes[id] = filepath.Dir(rel)
		}
	}
	return scopes
}
