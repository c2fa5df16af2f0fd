// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/process"
)

// hookInit is the name under which the program starts itself again, with PROGRAM
// ARGS…: a namespace's first process must do no more than reap.
const hookInit = "labkit:init"

// init runs on the main thread, before there is any other goroutine of ours.
func init() {
	if len(os.Args) < 2 || os.Args[1] != hookInit {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", hookInit, runInit(os.Args[2:]))
	os.Exit(1)
}

// Command runs this program with args in a new machine of that ID: new PID, mount,
// network, IPC and UTS namespaces. Start it by process.StartCmd.
func Command(id string, args ...string) *exec.Cmd {
	self := process.Self()
	cmd := exec.Command(self, append([]string{hookInit, self}, args...)...)
	cmd.Env = append(os.Environ(), envID+"="+id, process.Marker+"="+id)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	return cmd
}

// runInit is process 1: it mounts /proc, starts args, passes signals on,
// reaps, and ends with the child's status, whereupon the kernel kills the rest.
func runInit(args []string) error {
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
