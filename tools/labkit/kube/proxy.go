// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

// Proxy stands between components and the API server. It records every request, and on
// demand it shortens watches, cuts them in mid-stream at random, or holds them back: a
// reflector of 1.9 asks for watches of 5 to 10 minutes, which --min-request-timeout does
// not shorten.
//
// Client certificates end here; their users go on in the request headers that the
// aggregator uses. Bearer tokens are passed on.
type Proxy struct {
	URL string

	backend *url.URL
	mu      sync.Mutex
	rng     *rand.Rand
	log     *os.File
	done    map[ProxyRequest]int
	// shortest and spread are of the seconds that the server is asked to let a watch
	// live, 0 for what the client asked.
	shortest, spread int
	// cut is the mean time after which a watch is cut off, 0 for not at all.
	cut time.Duration
	// held is open while the watches that hold matches are held back, nil if none is.
	held chan struct{}
	hold func(path string) bool
	// instead is what answers in the server's place, nil if nothing does.
	instead *instead
	// watches are those that run.
	watches map[int]runningWatch
	next    int
	cuts    int

	tap atomic.Pointer[Tap]
}

type runningWatch struct {
	path string
	stop context.CancelFunc
}

// ProxyRequest is a kind of request that passed. Status is 0 for a watch, which is
// counted when it begins, and for a request that the server did not answer.
type ProxyRequest struct {
	Method, Path string
	Watch        bool
	Status       int
}

// proxyLine is a line of the proxy's log.
type proxyLine struct {
	At   time.Time `json:"at"`
	User string    `json:"user,omitempty"` // "" behind a token
	ProxyRequest
}

// StartProxy starts one before a, on another port of the machine. What it does at random
// depends on seed. <name>.jsonl has a line for each request.
func (s *Starter) StartProxy(a *APIServer, name string, seed uint64) (*Proxy, error) {
	pki, err := s.GetPKI()
	if err != nil {
		return nil, err
	}
	serving, err := pki.Issue(name, name, nil, machine.IP, "127.0.0.1", "localhost")
	if err != nil {
		return nil, err
	}
	front, err := pki.Issue("front-proxy-client", "front-proxy-client", nil)
	if err != nil {
		return nil, err
	}
	withFront, err := pki.TLS(front)
	if err != nil {
		return nil, err
	}
	without, err := pki.TLS(nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(serving.CertFile, serving.KeyFile)
	if err != nil {
		return nil, err
	}
	backend, err := url.Parse(a.URL)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(s.Path(name + ".jsonl"))
	if err != nil {
		return nil, err
	}
	p := &Proxy{backend: backend, rng: rand.New(rand.NewPCG(seed, 0x9e3779b9)), log: log, done: map[ProxyRequest]int{}, watches: map[int]runningWatch{}}
	transport := func(c *tls.Config) http.RoundTripper {
		return &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 200}
	}
	l, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p.URL = "https://" + l.Addr().String()
	srv := &http.Server{
		Handler:   p.handler(transport(withFront), transport(without)),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: withFront.RootCAs, GetConfigForClient: p.tapHello},
		ErrorLog:  stdlog.New(io.Discard, "", 0),
	}
	go srv.ServeTLS(l, "", "")
	s.OnStop(name, func(context.Context) error { return errors.Join(srv.Close(), p.close()) })
	return p, nil
}

// Before is a as its clients see it through p.
func (p *Proxy) Before(a *APIServer) *APIServer {
	b := *a
	b.URL = p.URL
	return &b
}

func (p *Proxy) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Close()
}

// handler passes on what has a token by tokens, the rest by certs.
func (p *Proxy) handler(certs, tokens http.RoundTripper) http.Handler {
	rp := &httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      stdlog.New(io.Discard, "", 0),
		Rewrite:       p.rewrite,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") != "" {
				return tokens.RoundTrip(r)
			}
			return certs.RoundTrip(r)
		}),
		// A server that is down looks like a connection that breaks, not like a 502.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(rp, w, r) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isWatch(u *url.URL) bool {
	w := u.Query().Get("watch")
	return w == "true" || w == "1" || strings.Contains(u.Path, "/watch/")
}

func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.backend)
	r.Out.Host = ""
	for h := range r.Out.Header {
		if strings.HasPrefix(h, "X-Remote-") {
			r.Out.Header.Del(h)
		}
	}
	if r.In.TLS != nil && len(r.In.TLS.PeerCertificates) > 0 {
		subject := r.In.TLS.PeerCertificates[0].Subject
		r.Out.Header.Set("X-Remote-User", subject.CommonName)
		for _, o := range subject.Organization {
			r.Out.Header.Add("X-Remote-Group", o)
		}
	}
	if !isWatch(r.In.URL) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shortest > 0 {
		q := r.Out.URL.Query()
		q.Set("timeoutSeconds", strconv.Itoa(p.shortest+p.rng.IntN(p.spread)))
		r.Out.URL.RawQuery = q.Encode()
	}
}

// note counts and writes a request.
func (p *Proxy) note(r *http.Request, status int) {
	l := proxyLine{At: time.Now().UTC(), ProxyRequest: ProxyRequest{Method: r.Method, Path: r.URL.Path, Watch: isWatch(r.URL), Status: status}}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		l.User = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	b, _ := json.Marshal(l) // strings and numbers
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[l.ProxyRequest]++
	_, _ = p.log.Write(append(b, '\n')) // closed at the end of a run; the counts are what labs read
}

// statusWriter keeps the status of the answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(code int) {
	w.status = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (p *Proxy) serve(rp http.Handler, w http.ResponseWriter, r *http.Request) {
	p.tapRequest(r)
	if !isWatch(r.URL) {
		if p.answered(w, r) {
			return
		}
		sw := &statusWriter{ResponseWriter: w}
		defer func() { p.note(r, sw.status) }() // also when the connection breaks
		rp.ServeHTTP(sw, r)
		return
	}
	p.mu.Lock()
	for p.held != nil && p.hold(r.URL.Path) {
		held := p.held
		p.mu.Unlock()
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		p.mu.Lock()
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.next++
	id := p.next
	p.watches[id] = runningWatch{r.URL.Path, cancel}
	if p.cut > 0 {
		// uniform in (0, 2*mean)
		t := time.AfterFunc(time.Duration(p.rng.Int64N(int64(2*p.cut))), func() {
			p.mu.Lock()
			p.cuts++
			p.mu.Unlock()
			cancel()
		})
		defer t.Stop()
	}
	p.mu.Unlock()
	p.note(r, 0)
	defer func() {
		p.mu.Lock()
		delete(p.watches, id)
		p.mu.Unlock()
	}()
	rp.ServeHTTP(w, r.WithContext(ctx))
}

// ShortenWatches has the server end watches, in its own way, after a number of seconds
// from shortest on, spread of them. Below a second a reflector lists again.
func (p *Proxy) ShortenWatches(shortest, spread int) {
	p.mu.Lock()
	p.shortest, p.spread = shortest, spread
	p.mu.Unlock()
}

// CutWatches sets the mean life of a watch; 0 lets them live.
func (p *Proxy) CutWatches(mean time.Duration) {
	p.mu.Lock()
	p.cut = mean
	p.mu.Unlock()
}

// Cuts is how many watches were cut.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Hold cuts the watches whose path matches and lets none of them through until release
// is called.
func (p *Proxy) Hold(matches func(path string) bool) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	p.held, p.hold = held, matches
	for _, w := range p.watches {
		if matches(w.path) {
			w.stop()
		}
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.held = nil
		p.mu.Unlock()
		close(held)
	})
}

// Count is how many requests of the kinds that want accepts have passed.
func (p *Proxy) Count(want func(ProxyRequest) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for r, times := range p.done {
		if want(r) {
			n += times
		}
	}
	return n
}

// Watches is how many watches of path have begun.
func (p *Proxy) Watches(path string) int {
	return p.Count(func(r ProxyRequest) bool { return r.Watch && r.Path == path })
}

// Lists is how many lists or reads of path have passed.
func (p *Proxy) Lists(path string) int {
	return p.Count(func(r ProxyRequest) bool { return !r.Watch && r.Path == path && r.Method == http.MethodGet })
}

// WaitWatches waits until n further watches of path have begun.
func (p *Proxy) WaitWatches(ctx context.Context, path string, n int, bound time.Duration) error {
	from := p.Watches(path)
	return wait.Until(ctx, fmt.Sprintf("%d restarts of the watch of %s", n, path), bound, func(context.Context) (bool, error) {
		if now := p.Watches(path); now < from+n {
			return false, fmt.Errorf("%d so far", now-from)
		}
		return true, nil
	})
}
