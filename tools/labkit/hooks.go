// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

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
)

// The program starts itself again under these names, because Go cannot enter
// a mount namespace once it has threads, and because a namespace's first
// process must do no more than reap.
const (
	hookInit  = "labkit:init"          // PROGRAM ARGS…: first process of a machine
	hookNode  = "labkit:node"          // JSON: keeps a node's namespaces
	hookJoin  = "labkit:join"          // PID CGROUP DIR PROGRAM ARGS…: exec inside a node
	hookRelay = "labkit:systemd-relay" // inside a node: systemdRelay
)

// init runs on the main thread, before there is any other goroutine of ours.
func init() {
	if len(os.Args) < 2 {
		return
	}
	var err error
	switch os.Args[1] {
	case hookInit:
		err = machineInit(os.Args[2:])
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

// machineInit is process 1: it mounts /proc, starts args, passes signals on,
// reaps, and ends with the child's status, whereupon the kernel kills the rest.
func machineInit(args []string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("is not process 1")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	go func() {
		for s := range sigs {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		if got == pid {
			if ws.Signaled() {
				os.Exit(128 + int(ws.Signal()))
			}
			os.Exit(ws.ExitStatus())
		}
	}
}

// nodeHold sets up the mounts of a node in its fresh namespaces and waits.
func nodeHold(arg string) error {
	runtime.LockOSThread() // the cgroup namespace is this thread's
	var s nodeSpec
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return err
	}
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	if err := enterCgroups(hs, s.Cgroup); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new cgroup namespace: %w", err)
	}
	m := &mounter{}
	m.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	m.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") // as systemd does; mount propagation wants it
	m.mount("sysfs", "/sys", "sysfs", 0, "")             // of this network namespace
	m.mount("cgroup", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")
	for _, h := range hs {
		d := filepath.Join("/sys/fs/cgroup", h.dir)
		m.mkdir(d)
		m.mount("cgroup", d, "cgroup", 0, h.options)
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

// nodeJoin execs a program in the namespaces and cgroups of a node's holder.
func nodeJoin(args []string) error {
	if len(args) < 4 {
		return fmt.Errorf("wants PID CGROUP DIR PROGRAM ARGS…")
	}
	pid, cgroup, dir, prog := args[0], args[1], args[2], args[3:]
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	if err := enterCgroups(hs, cgroup); err != nil {
		return err
	}
	fds := map[string]int{}
	for _, ns := range []string{"cgroup", "net", "mnt"} {
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
	for _, ns := range []struct {
		name string
		flag int
	}{{"cgroup", unix.CLONE_NEWCGROUP}, {"net", unix.CLONE_NEWNET}, {"mnt", unix.CLONE_NEWNS}} {
		if err := unix.Setns(fds[ns.name], ns.flag); err != nil {
			return fmt.Errorf("enter the %s namespace of process %s: %w", ns.name, pid, err)
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
