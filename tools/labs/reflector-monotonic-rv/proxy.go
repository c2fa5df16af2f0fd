// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

// proxy stands between the controller manager and the API server. A reflector of
// 1.9 asks for watches of 5 to 10 minutes, which --min-request-timeout does not
// shorten, so the proxy does: it asks the server for a watch of a few seconds, and
// the server ends it in its own way. On demand it also cuts watches in mid-stream at
// random, or holds them back.
//
// Client certificates end here; their users go on in the request headers that the
// aggregator uses. Bearer tokens are passed on.
type proxy struct {
	URL string

	backend *url.URL
	// shortest is the least number of seconds of a watch.
	shortest int
	mu       sync.Mutex
	rng      *rand.Rand
	// cut is the mean time after which a watch is cut off, 0 for not at all.
	cut time.Duration
	// held is open while watches are held back, nil if they are not.
	held chan struct{}
	// stops end the watches that run.
	stops map[int]context.CancelFunc
	next  int
	// watches and lists count the requests by path.
	watches, lists map[string]int
	cuts           int
}

// watchSeconds is what the proxy asks the server for: short, but not as short as
// the second below which a reflector lists again.
func (p *proxy) watchSeconds() int { return p.shortest + p.rng.IntN(3) }

func startProxy(e *labkit.Env, a *kube.APIServer) (*proxy, error) {
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	serving, err := pki.Issue("proxy", "proxy", nil, machine.IP, "127.0.0.1", "localhost")
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
	p := &proxy{backend: backend, shortest: 4, rng: rand.New(rand.NewPCG(e.Seed, 0x9e3779b9)), stops: map[int]context.CancelFunc{},
		watches: map[string]int{}, lists: map[string]int{}}
	transport := func(c *tls.Config) http.RoundTripper {
		return &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100}
	}
	certs, tokens := transport(withFront), transport(without)
	rp := &httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
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
	l, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return nil, err
	}
	p.URL = "https://" + l.Addr().String()
	srv := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(rp, w, r) }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: withFront.RootCAs},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	go srv.ServeTLS(l, "", "")
	e.OnStop("proxy", func(context.Context) error { return srv.Close() })
	return p, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isWatch(u *url.URL) bool {
	w := u.Query().Get("watch")
	return w == "true" || w == "1" || strings.Contains(u.Path, "/watch/")
}

func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.backend)
	r.Out.Host = ""
	for h := range r.Out.Header {
		if strings.HasPrefix(h, "X-Remote-") {
			r.Out.Header.Del(h)
		}
	}
	if cs := r.In.TLS.PeerCertificates; len(cs) > 0 {
		r.Out.Header.Set("X-Remote-User", cs[0].Subject.CommonName)
		for _, o := range cs[0].Subject.Organization {
			r.Out.Header.Add("X-Remote-Group", o)
		}
	}
	if isWatch(r.In.URL) {
		q := r.Out.URL.Query()
		p.mu.Lock()
		q.Set("timeoutSeconds", strconv.Itoa(p.watchSeconds()))
		p.mu.Unlock()
		r.Out.URL.RawQuery = q.Encode()
	}
}

func (p *proxy) serve(rp http.Handler, w http.ResponseWriter, r *http.Request) {
	if !isWatch(r.URL) {
		if r.Method == http.MethodGet {
			p.mu.Lock()
			p.lists[r.URL.Path]++
			p.mu.Unlock()
		}
		rp.ServeHTTP(w, r)
		return
	}
	for {
		p.mu.Lock()
		held := p.held
		if held == nil {
			break
		}
		p.mu.Unlock()
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.next++
	id := p.next
	p.stops[id] = cancel
	p.watches[r.URL.Path]++
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
	defer func() {
		p.mu.Lock()
		delete(p.stops, id)
		p.mu.Unlock()
	}()
	rp.ServeHTTP(w, r.WithContext(ctx))
}

// cutWatches sets the mean life of a watch; 0 lets them live.
func (p *proxy) cutWatches(mean time.Duration) {
	p.mu.Lock()
	p.cut = mean
	p.mu.Unlock()
}

// hold cuts all watches and lets none through until release is called.
func (p *proxy) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	p.held = held
	for _, stop := range p.stops {
		stop()
	}
	return func() {
		p.mu.Lock()
		p.held = nil
		p.mu.Unlock()
		close(held)
	}
}

func (p *proxy) counts(path string) (watches, lists, cuts int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches[path], p.lists[path], p.cuts
}

// waitRestarts waits until n further watches of path were started.
func (p *proxy) waitRestarts(ctx context.Context, path string, n int, bound time.Duration) error {
	from, _, _ := p.counts(path)
	return wait.Until(ctx, fmt.Sprintf("%d restarts of the watch of %s", n, path), bound, func(context.Context) (bool, error) {
		now, _, _ := p.counts(path)
		if now < from+n {
			return false, fmt.Errorf("%d so far", now-from)
		}
		return true, nil
	})
}
