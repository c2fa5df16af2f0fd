// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package silentconnection

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/kubernetes/pkg/features"
)

func setGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KCMSilentConnection, on)
}

// line is a way to a server on which, at a word, nothing comes through any more. Both ends
// stay, and what they send is acknowledged.
type line struct {
	net.Listener
	conns int64

	mu      sync.Mutex
	swallow []*int32
}

func newLine(t *testing.T, backend string) *line {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &line{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", backend)
			if err != nil {
				c.Close()
				continue
			}
			atomic.AddInt64(&p.conns, 1)
			dead := new(int32)
			p.mu.Lock()
			p.swallow = append(p.swallow, dead)
			p.mu.Unlock()
			go pass(b, c, dead)
			go pass(c, b, dead)
		}
	}()
	return p
}

func pass(to, from net.Conn, dead *int32) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if atomic.LoadInt32(dead) == 0 {
			to.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// die swallows what comes over the connections that there are.
func (p *line) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, dead := range p.swallow {
		atomic.StoreInt32(dead, 1)
	}
}

func (p *line) connections() int64 { return atomic.LoadInt64(&p.conns) }

// server is an API server. /watch says one word and is quiet then; /list is quiet until its
// answer; /answer answers.
func server(t *testing.T, http2 bool, quiet time.Duration) (*httptest.Server, *line) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/watch":
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(quiet):
			case <-r.Context().Done():
			}
			io.WriteString(w, "z")
		case "/list":
			time.Sleep(quiet)
			io.WriteString(w, "list")
		default:
			io.WriteString(w, r.Proto)
		}
	}))
	s.EnableHTTP2 = http2
	s.StartTLS()
	return s, newLine(t, s.Listener.Addr().String())
}

var unique int64

// client is made as those of the controller manager are, and shares its connection with
// no other one of the test.
func client(t *testing.T, s *httptest.Server, l *line, w *watcher) *http.Client {
	config := &restclient.Config{Host: "https://" + l.Addr().String()}
	config.CAData = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		fmt.Sprintf("\nclient %d\n", atomic.AddInt64(&unique, 1))...)
	if w != nil {
		w.watch(config)
	}
	rt, err := restclient.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: rt}
}

func get(c *http.Client, l *line, path string) (string, error) {
	resp, err := c.Get("https://" + l.Addr().String() + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

type got struct {
	text string
	err  error
}

func ask(c *http.Client, l *line, path string) <-chan got {
	done := make(chan got, 1)
	go func() {
		text, err := get(c, l, path)
		done <- got{text, err}
	}()
	return done
}

func quick() *watcher { return newWatcher(300*time.Millisecond, time.Second, 2*time.Second) }

// TestHoldfastKCMSilentConnectionReplaced: the requests on a dead connection fail, and the
// next one has another. Without the watcher they hang.
func TestHoldfastKCMSilentConnectionReplaced(t *testing.T) {
	for name, w := range map[string]*watcher{"watched": quick(), "stock": nil} {
		w := w
		t.Run(name, func(t *testing.T) {
			s, l := server(t, true, time.Hour)
			defer l.Close()
			c := client(t, s, l, w)
			// Many at once: each dials, and all but one of the connections are dropped.
			var first []<-chan got
			for i := 0; i < 8; i++ {
				first = append(first, ask(c, l, "/answer"))
			}
			for _, f := range first {
				if f := <-f; f.text != "HTTP/2.0" {
					t.Fatalf("answer %q, error %v", f.text, f.err)
				}
			}
			watch := ask(c, l, "/watch")
			time.Sleep(500 * time.Millisecond)
			l.die()
			request := ask(c, l, "/answer")
			for what, done := range map[string]<-chan got{"watch": watch, "request": request} {
				select {
				case g := <-done:
					if w == nil || g.err == nil {
						t.Errorf("%s on a dead connection: %q, error %v", what, g.text, g.err)
					}
				case <-time.After(4 * time.Second):
					if w != nil {
						t.Errorf("%s hangs on a dead connection", what)
					}
				}
			}
			next := ask(c, l, "/answer")
			select {
			case g := <-next:
				if w == nil || g.text != "HTTP/2.0" {
					t.Errorf("the next request: %q, error %v", g.text, g.err)
				}
			case <-time.After(4 * time.Second):
				if w != nil {
					t.Error("the next request hangs")
				}
			}
			if w == nil {
				return
			}
			watched := 0
			for end := time.Now().Add(10 * time.Second); watched != 1 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				w.mu.Lock()
				watched = len(w.watched)
				w.mu.Unlock()
			}
			if watched != 1 {
				t.Errorf("%d connections are watched", watched)
			}
		})
	}
}

// TestHoldfastKCMSilentConnectionQuiet: a watch without events and a list that takes long
// are many times as long as an answer to a ping may take.
func TestHoldfastKCMSilentConnectionQuiet(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		s, l := server(t, http2, 6*time.Second)
		defer l.Close()
		c := client(t, s, l, quick())
		watch, list := ask(c, l, "/watch"), ask(c, l, "/list")
		if g := <-watch; g.text != "az" || g.err != nil {
			t.Errorf("HTTP/2 %v: a quiet watch: %q, error %v", http2, g.text, g.err)
		}
		if g := <-list; g.text != "list" || g.err != nil {
			t.Errorf("HTTP/2 %v: a slow list: %q, error %v", http2, g.text, g.err)
		}
		conns := l.connections()
		if text, err := get(c, l, "/answer"); err != nil || l.connections() != conns {
			t.Errorf("HTTP/2 %v: the connection was replaced: %q, error %v", http2, text, err)
		}
	}
}

// TestHoldfastKCMSilentConnectionUnread: the other end reads nothing any more. That ends
// also without HTTP/2.
func TestHoldfastKCMSilentConnectionUnread(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := quick().dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				done <- err
				return
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("a write hangs for 20 s")
	}
}

// TestHoldfastKCMSilentConnectionOff: with the gate off a config is as it was.
func TestHoldfastKCMSilentConnectionOff(t *testing.T) {
	for _, on := range []bool{true, false} {
		restore := setGate(t, on)
		config := &restclient.Config{Host: "https://127.0.0.1:1"}
		Watch(config)
		election := ForElection(config, 10*time.Second)
		restore()
		if (config.Dial != nil) != on || (config.WrapTransport != nil) != on || leaderelection.BoundRequests != on {
			t.Errorf("gate %v: dialer %v, wrapper %v, bound requests %v", on, config.Dial != nil, config.WrapTransport != nil, leaderelection.BoundRequests)
		}
		if config.Timeout != 0 || (election == config) == on || on && election.Timeout != 5*time.Second {
			t.Errorf("gate %v: time-outs %v, leader election %v", on, config.Timeout, election.Timeout)
		}
	}
	leaderelection.BoundRequests = true
}
