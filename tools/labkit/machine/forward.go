// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"io"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// Forward passes each connection of l on to addr, both ways, until l is closed.
func Forward(l net.Listener, network, addr string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			d, err := net.Dial(network, addr)
			if err != nil {
				return
			}
			defer d.Close()
			half := make(chan struct{}, 2)
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				if w, ok := to.(interface{ CloseWrite() error }); ok {
					_ = w.CloseWrite()
				}
				half <- struct{}{}
			}
			go pipe(d, c)
			go pipe(c, d)
			<-half
			<-half
		}()
	}
}

// ListenIn listens in the network namespace of another process. A socket stays in
// the namespace in which it was made, so only the call itself is there.
func ListenIn(pid int, network, addr string) (net.Listener, error) {
	type made struct {
		l   net.Listener
		err error
	}
	done := make(chan made)
	go func() {
		// Never unlocked: the thread ends with the goroutine, in whatever namespace.
		runtime.LockOSThread()
		var m made
		m.l, m.err = listenIn(pid, network, addr)
		done <- m
	}()
	m := <-done
	return m.l, m.err
}

func listenIn(pid int, network, addr string) (net.Listener, error) {
	file := fmt.Sprintf("/proc/%d/ns/net", pid)
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter %s: %w", file, err)
	}
	return net.Listen(network, addr)
}
