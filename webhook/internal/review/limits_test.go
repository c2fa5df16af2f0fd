// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// dial sends the head of a review that announces length bytes, and then begin.
func dial(t *testing.T, s *httptest.Server, length int, begin string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length, begin)
	return c
}

// reply is the answer on a connection, which must come within limit.
func reply(t *testing.T, c net.Conn, limit time.Duration) response {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(limit))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer within %v: %v", limit, err)
	}
	defer resp.Body.Close()
	var r response
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || resp.StatusCode != http.StatusOK || !r.Response.Allowed {
		t.Fatalf("status %d, %v: %+v", resp.StatusCode, err, r)
	}
	return r
}

// TestSlowBody: a body that does not come is answered at the deadline, on a real connection,
// and its slot is free again.
func TestSlowBody(t *testing.T) {
	outcomes := make(chan string, 10)
	h := NewHandler(&fake{}, slog.New(slog.DiscardHandler), func(o string, _ time.Duration, _ Result) { outcomes <- o })
	h.Deadline, h.slots = 200*time.Millisecond, make(chan struct{}, 1)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close) // after the connections, which it waits for
	text := review("v1", endpoints("", "[]"), "")
	c := dial(t, s, len(text), text[:len(text)-1])
	if r := reply(t, c, 10*time.Second); r.Response.UID != "0a1b" || r.Response.Patch != nil {
		t.Errorf("%+v", r)
	}
	if o := <-outcomes; o != TooLate {
		t.Errorf("outcome %s", o)
	}
	if len(h.slots) != 0 {
		t.Error("the slot is still taken")
	}
}

// TestSlotFirst: bodies without a slot are not kept, and no memory is taken for a length
// that is only announced. The limit of the program's container is 1 GiB.
func TestSlotFirst(t *testing.T) {
	const clients = 150
	outcomes := make(chan string, clients)
	h := NewHandler(&fake{}, slog.New(slog.DiscardHandler), func(o string, _ time.Duration, _ Result) { outcomes <- o })
	h.Deadline = 30 * time.Second
	var entered atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered.Add(1)
		h.ServeHTTP(w, r)
	}))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := review("v1", endpoints("", "[]"), "")
	begin += strings.Repeat(" ", 2*head-len(begin))
	var conns []net.Conn
	for range clients {
		conns = append(conns, dial(t, s, MaxBody, begin))
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if entered.Load() == clients && len(h.slots) == InFlight {
			break
		}
	}
	time.Sleep(100 * time.Millisecond)
	runtime.ReadMemStats(&after)
	if len(h.slots) != InFlight || entered.Load() != clients {
		t.Errorf("%d slots are taken by %d reviews, want all %d", len(h.slots), entered.Load(), InFlight)
	}
	if took := int64(after.TotalAlloc - before.TotalAlloc); took > 64<<20 {
		t.Errorf("%d connections took %d MiB for bodies that have not come", clients, took>>20)
	}
	for _, c := range conns {
		c.Close()
	}
	s.Close()
	count := map[string]int{}
	for range clients {
		count[<-outcomes]++
	}
	if count[TooMany] != clients-InFlight || count[TooLate] != InFlight {
		t.Errorf("outcomes %v, want %d without a slot", count, clients-InFlight)
	}
}

// TestNoSlot: a review without a slot is answered under its uid, and its connection goes on.
func TestNoSlot(t *testing.T) {
	h := NewHandler(&fake{}, slog.New(slog.DiscardHandler), func(string, time.Duration, Result) {})
	h.slots = make(chan struct{}) // none
	h.Deadline = 10 * time.Second
	s := httptest.NewServer(h)
	t.Cleanup(s.Close) // after the connections, which it waits for
	text := review("v1", endpoints("", "[]"), "")
	text += strings.Repeat(" ", 1<<20) // more than net/http reads by itself
	c := dial(t, s, len(text), text)
	for range 2 {
		if r := reply(t, c, 10*time.Second); r.Response.UID != "0a1b" || r.Response.Patch != nil {
			t.Errorf("%+v", r)
		}
		if _, err := io.WriteString(c, fmt.Sprintf("POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text)); err != nil {
			t.Fatalf("the connection is closed: %v", err)
		}
	}
}

// TestInTime: an answer that is there when the deadline has passed is not sent, whichever of
// the two is seen first; a refusal is.
func TestInTime(t *testing.T) {
	past, cancel := context.WithCancel(context.Background())
	cancel()
	with := func(a answer) chan answer {
		c := make(chan answer, 1)
		c <- a
		return c
	}
	refused := 0
	for range 200 {
		if a, ok := inTime(past, with(answer{status: http.StatusOK, outcome: Patched})); ok {
			t.Fatalf("%s after the deadline", a.outcome)
		}
		if a, ok := inTime(past, with(answer{status: http.StatusBadRequest})); ok && a.status == http.StatusBadRequest {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no refusal is sent after the deadline")
	}
	if a, ok := inTime(context.Background(), with(answer{status: http.StatusOK, outcome: Patched})); !ok || a.outcome != Patched {
		t.Errorf("before the deadline: %v %s", ok, a.outcome)
	}
}
