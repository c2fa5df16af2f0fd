// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcmsilentconnection

import (
	"io"
	"net"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

type seen struct {
	c controllers
	o lease
	a late
}

// made is a history: of ours one in which all went well. change may change it.
func made(v labkit.Variant, change func(*seen)) *history.History {
	s := seen{
		controllers{Dead: 1, Leads: true, Pods: true, Seconds: 28},
		lease{Ended: 10, Followed: 17, Lost: true},
		late{"other", "other"},
	}
	if v != labkit.Ours {
		s.c.Pods, s.o = false, lease{Leads: true, Followed: 17}
	}
	if change != nil {
		change(&s)
	}
	return history.Make(history.Begin{Lab: "kcm-silent-connection", Variant: string(v), Profile: string(labkit.Short)}, healthy{1}, s.c, s.o, s.a)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "kcm-silent-connection")
	judgetest.Cut(t, l, made(labkit.Ours, nil))
	judgetest.Judge(t, l, made(labkit.Ours, nil), labkit.Absent)
	judgetest.Judge(t, l, made(labkit.Stock, nil), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.GateOff, nil), labkit.Reproduced)
	for _, change := range []func(*seen){
		func(s *seen) { s.c.Pods = false },
		func(s *seen) { s.o = lease{Leads: true, Followed: 17} },
		func(s *seen) { s.a.Holder = "first" },
	} {
		judgetest.Judge(t, l, made(labkit.Ours, change), labkit.Reproduced)
	}
	for _, change := range []func(*seen){
		func(s *seen) { s.c.Dead = 0 },
		func(s *seen) { s.c.Leads = false },
		func(s *seen) { s.o.Followed = 0 },
		func(s *seen) { s.o.Lost = false },
		func(s *seen) { s.a = late{} },
	} {
		judgetest.Judge(t, l, made(labkit.Ours, change), labkit.Inconclusive)
	}
	judgetest.Judge(t, l, made(labkit.Stock, func(s *seen) { s.c.Pods = true }), labkit.Inconclusive)
	judgetest.Judge(t, l, made(labkit.Stock, func(s *seen) { s.o.Leads = false }), labkit.Inconclusive)
}

// TestLine: what is kept back comes later, and all of it.
func TestLine(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: in, to: server.Addr().String()}
	go l.serve()
	defer l.Close()
	c, err := net.Dial("tcp", in.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	read := func(n int) string {
		b := make([]byte, n)
		_ = s.SetReadDeadline(time.Now().Add(time.Second))
		n, _ = io.ReadFull(s, b)
		return string(b[:n])
	}
	_, _ = c.Write([]byte("one"))
	if got := read(3); got != "one" {
		t.Fatalf("got %q", got)
	}
	if n := l.keepBack(1); n != 0 {
		t.Errorf("%d connections after the first", n)
	}
	if n := l.keepBack(0); n != 1 {
		t.Errorf("%d connections", n)
	}
	_, _ = c.Write([]byte("two"))
	_ = c.Close()
	if got := read(3); got != "" {
		t.Errorf("got %q", got)
	}
	l.release()
	if got := read(3); got != "two" {
		t.Errorf("got %q", got)
	}
}
