// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newProxy is one before a server that answers lists, refuses what is POSTed, and
// watches until its client goes.
func newProxy(t *testing.T) (*Proxy, string) {
	t.Helper()
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusConflict)
		case isWatch(r.URL):
			fmt.Fprintf(w, "begun %s\n", r.URL.Query().Get("timeoutSeconds"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintln(w, "list")
		}
	}))
	u, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "proxy.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{backend: u, rng: rand.New(rand.NewPCG(1, 2)), log: log, done: map[ProxyRequest]int{}, watches: map[int]runningWatch{}}
	front := httptest.NewServer(p.handler(http.DefaultTransport, http.DefaultTransport))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close(); back.CloseClientConnections(); back.Close() })
	return p, front.URL
}

// eventually fails the test unless ok becomes true within 5 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never saw %s", what)
		}
	}
}

func TestProxy(t *testing.T) {
	p, front := newProxy(t)
	get := func(path string) *http.Response {
		t.Helper()
		resp, err := http.Get(front + path)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := get("/pods")
	if b, _ := io.ReadAll(resp.Body); string(b) != "list\n" {
		t.Errorf("%q", b)
	}
	resp.Body.Close()
	// A request is counted when its answer is complete, which the client may see first.
	eventually(t, "one list", func() bool { return p.Lists("/pods") == 1 && p.Watches("/pods") == 0 })
	if resp, err := http.Post(front+"/pods", "", strings.NewReader("x")); err != nil || resp.StatusCode != http.StatusConflict {
		t.Error(resp, err)
	}
	eventually(t, "one conflict", func() bool {
		return p.Count(func(r ProxyRequest) bool { return r.Method == http.MethodPost && r.Status == http.StatusConflict }) == 1
	})

	p.ShortenWatches(7, 1)
	resp = get("/pods?watch=true")
	first := bufio.NewReader(resp.Body)
	if l, err := first.ReadString('\n'); l != "begun 7\n" || p.Watches("/pods") != 1 {
		t.Errorf("%q, %v, %v", l, err, p.done)
	}
	// Hold cuts the watch that runs and keeps others waiting; another path goes through.
	release := p.Hold(func(path string) bool { return path == "/pods" })
	if _, err := first.ReadString('\n'); err == nil {
		t.Error("the watch goes on")
	}
	resp.Body.Close()
	if resp := get("/nodes?watch=1"); p.Watches("/nodes") != 1 {
		t.Error(p.done)
	} else {
		resp.Body.Close()
	}
	held := make(chan error, 1)
	go func() {
		resp, err := http.Get(front + "/pods?watch=true")
		if err == nil {
			err = resp.Body.Close()
		}
		held <- err
	}()
	select {
	case err := <-held:
		t.Errorf("not held back: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := p.WaitWatches(context.Background(), "/pods", 1, 100*time.Millisecond); err == nil {
		t.Error("a held watch is counted")
	}
	release()
	if err := <-held; err != nil || p.Watches("/pods") != 2 {
		t.Error(err, p.done)
	}
	p.CutWatches(10 * time.Millisecond)
	// On a busy machine the cut comes before the answer begins. Then there is none, or net/http has
	// asked again.
	resp, err := http.Get(front + "/pods?watch=true")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	cuts := p.Cuts()
	if cuts == 0 {
		t.Errorf("%v, no cut", err)
	}
	b, err := os.ReadFile(p.log.Name())
	if n := strings.Count(string(b), "\n"); err != nil || n != 5+cuts {
		t.Errorf("%d lines in the log: %v\n%s", n, err, b)
	}
}

// TestProxyAnswer: the proxy answers so many requests itself, and passes on the others.
func TestProxyAnswer(t *testing.T) {
	p, front := newProxy(t)
	given := p.Answer(2, func(r *http.Request) bool { return r.URL.Path == "/pods" }, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "mine") })
	for i, want := range []string{"/pods mine", "/nodes list", "/pods mine", "/pods list"} {
		path, text, _ := strings.Cut(want, " ")
		resp, err := http.Get(front + path)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); string(b) != text+"\n" {
			t.Errorf("%d: %q, want %q", i, b, text)
		}
		resp.Body.Close()
	}
	eventually(t, "two answers", func() bool { return given() == 2 && p.Lists("/pods") == 1 && p.Lists("/nodes") == 1 })
}
