// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcmsilentconnection

import (
	"net"
	"sync"

	"holdfast/tools/labkit/machine"
)

// line is a way to a server that can keep back what comes, either way. Both ends stay
// connected, and their kernels acknowledge each other.
type line struct {
	net.Listener
	to string

	mu      sync.Mutex
	ways    []*gate
	refused bool
	ends    []net.Conn
}

// gate of one connection.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed if open
	shut bool
	// ended is that one of the ends has closed the connection.
	ended bool
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.open, g.shut = make(chan struct{}), true
	}
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		close(g.open)
		g.shut = false
	}
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

func (g *gate) live() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.ended
}

func (g *gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

func newLine(to string) (*line, error) {
	in, err := net.Listen("tcp", machine.IP+":0") // certificates of API servers name it
	if err != nil {
		return nil, err
	}
	l := &line{Listener: in, to: to}
	go l.serve()
	return l, nil
}

func (l *line) serve() {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		d, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = c.Close()
			continue
		}
		g := newGate()
		l.mu.Lock()
		if l.refused {
			g.close()
		}
		l.ways, l.ends = append(l.ways, g), append(l.ends, c, d)
		l.mu.Unlock()
		go pass(d, c, g)
		go pass(c, d, g)
	}
}

// pass ends to when from has ended, after all that came.
func pass(to, from net.Conn, g *gate) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			g.end()
		}
		g.wait()
		if _, bad := to.Write(b[:n]); bad != nil || err != nil {
			return
		}
	}
}

// keepBack lets nothing through any more on the connections that there are, but for the
// first ones, and returns on how many. A client that dialed twice at once has closed one.
func (l *line) keepBack(but int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, g := range l.ways {
		if !g.live() {
			continue
		}
		if n++; n > but {
			g.close()
		}
	}
	return max(n-but, 0)
}

// refuse lets nothing through on connections to come.
func (l *line) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = true
}

// release lets everything through, also what was kept back.
func (l *line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = false
	for _, g := range l.ways {
		g.reopen()
	}
}

// Close ends all connections.
func (l *line) Close() error {
	err := l.Listener.Close()
	l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.ends {
		_ = c.Close()
	}
	return err
}
