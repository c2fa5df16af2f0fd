// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/machine"
)

// The program starts itself again under these names, because Go cannot enter
// a mount namespace once it has threads.
const (
	hookNode  = "labkit:node"          // JSON: keeps a node's namespaces
	hookJoin  = "labkit:join"          // PID NAMESPACES CGROUP DIR PROGRAM ARGS…: exec inside a node
	hookRelay = "labkit:systemd-relay" // inside a node: systemdRelay
)

// init runs on the main thread, before there is any other goroutine of ours.
func init() {
	if len(os.Args) < 2 {
		return
	}
	var err error
	switch os.Args[1] {
	case hookNode:
		err = nodeHold(os.Args[2])
	case hookJoin:
		err = nodeJoin(os.Args[2:])
	case hookRelay:
		err = systemdRelay()
	default:
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
	os.Exit(1)
}

// nodeHold sets up the mounts of a node in its fresh namespaces and waits.
func nodeHold(arg string) error {
	runtime.LockOSThread() // the cgroup namespace is this thread's
	var s nodeSpec
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return err
	}
	hs, err := machine.Hierarchies()
	if err != nil {
		return err
	}
	if err := machine.EnterCgroups(hs, s.Cgroup); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new cgroup namespace: %w", err)
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("set the host name %s: %w", s.Hostname, err)
		}
	}
	m := &mounter{}
	m.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	m.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") // as systemd does; mount propagation wants it
	m.mount("sysfs", "/sys", "sysfs", 0, "")             // of this network namespace
	m.mount("cgroup", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")
	for _, h := range hs {
		d := filepath.Join("/sys/fs/cgroup", h.Dir)
		m.mkdir(d)
		m.mount("cgroup", d, "cgroup", 0, h.Options)
	}
	m.mount("run", "/run", "tmpfs", 0, "mode=755")
	m.mkdir("/run/lock")
	for _, d := range []string{"/etc", "/var/lib", "/var/log"} {
		name := strings.ReplaceAll(strings.Trim(d, "/"), "/", "-")
		up, work := filepath.Join(s.Dir, "overlay", name+".upper"), filepath.Join(s.Dir, "overlay", name+".work")
		m.mkdir(up)
		m.mkdir(work)
		m.mount("overlay", d, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", d, up, work))
	}
	if s.Systemd {
		m.mountForSystemd(hs)
	}
	for from, to := range map[string]string{"docker": "/var/lib/docker", "kubelet": "/var/lib/kubelet", "dockershim": "/var/lib/dockershim",
		"log-pods": "/var/log/pods", "log-containers": "/var/log/containers"} {
		m.mkdir(to)
		m.mount(filepath.Join(s.Dir, from), to, "", unix.MS_BIND, "")
	}
	// Who sets these sets them for the whole kernel; here it is a copy.
	m.mkdir(filepath.Join(s.Dir, "sysctl"))
	for _, k := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
		"fs/file-max", "fs/nr_open"} { // the last two by systemd
		b, err := os.ReadFile("/proc/sys/" + k)
		if err != nil {
			continue // not in this kernel, so nobody can change it
		}
		c := filepath.Join(s.Dir, "sysctl", strings.ReplaceAll(k, "/", "."))
		if err := os.WriteFile(c, b, 0o644); err != nil {
			return err
		}
		m.mount(c, "/proc/sys/"+k, "", unix.MS_BIND, "")
	}
	if m.err != nil {
		return m.err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if err := os.WriteFile(s.Ready, nil, 0o644); err != nil {
		return err
	}
	if s.Systemd {
		return execSystemd()
	}
	<-stop
	os.Exit(0)
	return nil
}

// mounter keeps the first error.
type mounter struct{ err error }

func (m *mounter) mount(src, dst, kind string, flags uintptr, data string) {
	if m.err == nil {
		if err := unix.Mount(src, dst, kind, flags, data); err != nil {
			m.err = fmt.Errorf("mount %s on %s (%s %s): %w", src, dst, kind, data, err)
		}
	}
}

func (m *mounter) mkdir(d string) {
	if m.err == nil {
		m.err = os.MkdirAll(d, 0o755)
	}
}

// joined are the namespaces that nodeJoin can be told to enter.
var joined = map[string]int{"uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "net": unix.CLONE_NEWNET, "mnt": unix.CLONE_NEWNS}

// nodeJoin execs a program in the namespaces and cgroups of a node's holder.
func nodeJoin(args []string) error {
	if len(args) < 5 {
		return fmt.Errorf("wants PID NAMESPACES CGROUP DIR PROGRAM ARGS…")
	}
	pid, spaces, cgroup, dir, prog := args[0], strings.Split(args[1], ","), args[2], args[3], args[4:]
	hs, err := machine.Hierarchies()
	if err != nil {
		return err
	}
	if err := machine.EnterCgroups(hs, cgroup); err != nil {
		return err
	}
	fds := map[string]int{}
	for _, ns := range spaces {
		if joined[ns] == 0 {
			return fmt.Errorf("%q is no namespace of a node", ns)
		}
		fd, err := unix.Open("/proc/"+pid+"/ns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s namespace of process %s: %w", ns, pid, err)
		}
		fds[ns] = fd
	}
	// The main thread must not share its root and working directory with the
	// runtime's other threads, else the kernel refuses the mount namespace.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare CLONE_FS: %w", err)
	}
	for _, ns := range spaces {
		if err := unix.Setns(fds[ns], joined[ns]); err != nil {
			return fmt.Errorf("enter the %s namespace of process %s: %w", ns, pid, err)
		}
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("chdir %s: %w", dir, err)
	}
	path, err := exec.LookPath(prog[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, prog, os.Environ())
}
