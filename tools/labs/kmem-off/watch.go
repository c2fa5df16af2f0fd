// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kmemoff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// memoryCgroups is where the hierarchy of the memory controller is mounted. Each mount of it,
// also the node's own, has the same files.
const memoryCgroups = "/sys/fs/cgroup/memory"

// writes are the files of the memory cgroups that somebody wrote to.
type writes struct {
	fd    int
	ended chan struct{}

	mu    sync.Mutex
	paths map[string]int // path -> writes
}

// watch sees each file of the hierarchy that is closed after it was written to. Kernels from 6.1 on
// ignore what is written into memory.kmem.limit_in_bytes, so what was asked for cannot be read from
// the file later.
func watch() (*writes, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fanotify: %w", err)
	}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_CLOSE_WRITE, unix.AT_FDCWD, memoryCgroups); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("fanotify of %s: %w", memoryCgroups, err)
	}
	w := &writes{fd: fd, ended: make(chan struct{}), paths: map[string]int{}}
	go w.read()
	return w, nil
}

func (w *writes) read() {
	defer unix.Close(w.fd)
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			select {
			case <-w.ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return
		}
		w.take(buf[:n])
	}
}

// take notes the events in buf, each a struct fanotify_event_metadata.
func (w *writes) take(buf []byte) {
	for len(buf) >= 24 {
		size := int(binary.NativeEndian.Uint32(buf))
		fd := int(int32(binary.NativeEndian.Uint32(buf[16:])))
		if size < 24 || size > len(buf) {
			return
		}
		if fd >= 0 {
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			unix.Close(fd)
			if err == nil {
				w.mu.Lock()
				w.paths[path]++
				w.mu.Unlock()
			}
		}
		buf = buf[size:]
	}
}

// count is how often a file was written to whose path ends so.
func (w *writes) count(end string) int {
	return w.sum(func(path string) bool { return strings.HasSuffix(path, end) })
}

// kernelMemory is how often limits of kernel memory were written in cgroups below parent.
func (w *writes) kernelMemory(parent string) int {
	return w.sum(func(path string) bool {
		return strings.HasSuffix(path, "/memory.kmem.limit_in_bytes") && strings.Contains(path, parent+"/")
	})
}

func (w *writes) sum(keep func(path string) bool) int {
	time.Sleep(100 * time.Millisecond) // so that read has taken what was written before; no oracle
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for path, writes := range w.paths {
		if keep(path) {
			n += writes
		}
	}
	return n
}

func (w *writes) close() { close(w.ended) }
