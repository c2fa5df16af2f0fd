// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
)

// namespaces are those of process 1 that the pod does not share by hostPID and hostNetwork, and the
// network, so that a pod without hostNetwork reaches the kubelet's own port too.
var namespaces = []string{"uts", "ipc", "net", "mnt"}

// calls are the numbers of unshare and setns, which package syscall does not have everywhere.
var calls = map[string]struct{ unshare, setns uintptr }{
	"linux/amd64": {272, 308},
	"linux/arm64": {97, 268},
}

const (
	enterFlag = "--enter"
	cloneFS   = 0x200
	// hostPath is where programs of the host are looked for: the image has no shell that sets it.
	hostPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// enter goes into the namespaces of process 1 and executes this program there, with the same
// arguments less enterFlag. It returns only if it cannot.
func enter() error {
	call, ok := calls[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return fmt.Errorf("%s is for nodes with Linux on amd64 or arm64", enterFlag)
	}
	// A thread may enter a mount namespace if it shares its root and working directory with no other.
	runtime.LockOSThread()
	if _, _, e := syscall.RawSyscall(call.unshare, cloneFS, 0, 0); e != 0 {
		return fmt.Errorf("unshare: %w", e)
	}
	var fds []int
	for _, ns := range namespaces {
		fd, err := syscall.Open("/proc/1/ns/"+ns, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("the %s namespace of process 1: %w: the pod must be privileged and have hostPID", ns, err)
		}
		fds = append(fds, fd)
	}
	for i, fd := range fds {
		if _, _, e := syscall.RawSyscall(call.setns, uintptr(fd), 0, 0); e != 0 {
			return fmt.Errorf("enter the %s namespace of process 1: %w: the pod must be privileged and have hostPID", namespaces[i], e)
		}
	}
	if err := syscall.Chdir("/"); err != nil {
		return err
	}
	args := slices.DeleteFunc(slices.Clone(os.Args), func(a string) bool { return a == enterFlag })
	// The link leads to the program in the image, wherever it is followed.
	return fmt.Errorf("execute the program on the host: %w", syscall.Exec("/proc/self/exe", args, []string{hostPath, "LC_ALL=C"}))
}
