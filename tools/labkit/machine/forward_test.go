// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
)

// TestForward: what goes in one way and out the other arrives, and an end of one
// direction is the end of that direction only.
func TestForward(t *testing.T) {
	back, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	go func() { // answers when the question has ended
		c, err := back.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		_, _ = c.Write(append([]byte("heard "), b...))
	}()
	// ListenIn needs root in general, for another namespace; this process's own is
	// where any listener would be.
	l, err := ListenIn(os.Getpid(), "tcp", "127.0.0.1:0")
	if err != nil {
		if os.Getuid() != 0 {
			t.Skip("needs root: ", err)
		}
		t.Fatal(err)
	}
	defer l.Close()
	go Forward(l, "tcp", back.Addr().String())
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("this\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "heard this\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestListenInNoProcess(t *testing.T) {
	if l, err := ListenIn(-1, "tcp", "127.0.0.1:0"); err == nil {
		l.Close()
		t.Error("listens in the namespace of no process")
	}
}
