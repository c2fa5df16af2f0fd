// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package silentconnection replaces connections to the API server on which nothing comes
// back, without a reset: a cable, a firewall or a load balancer that forgot them.
//
// A client of this release has one HTTP/2 connection for all its requests, without a
// time-out. What is sent is repeated by TCP for 15 minutes, and so long nothing is
// reconciled (kubernetes/kubernetes#41916, #65090, #87899). The http2 of this release
// cannot find that by itself, but it can be asked to ping.
package silentconnection

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/kubernetes/pkg/features"
)

const (
	// pingEvery is the time between pings. A server that answers none, and sends nothing
	// else, for silence after one is taken for gone: 25 s in all.
	pingEvery = 10 * time.Second
	silence   = 15 * time.Second
	// unacked is how long TCP repeats what the other end's kernel does not acknowledge.
	// It finds connections without HTTP/2, and those on which nothing can be written.
	unacked = 25 * time.Second
	// tcpUserTimeout is TCP_USER_TIMEOUT of Linux, in milliseconds.
	tcpUserTimeout = 0x12
)

var closed = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_kcm_silent_connection_closed_total",
	Help: "Connections to the API server that were closed because no ping was answered.",
})

func init() { prometheus.MustRegister(closed) }

// Watch has the clients made of config, and of its copies, close a connection on which
// nothing comes back. It says to the leader election whether to wait for requests that
// hang. With the feature gate off both are as they were.
func Watch(config *restclient.Config) {
	on := utilfeature.DefaultFeatureGate.Enabled(features.KCMSilentConnection)
	leaderelection.BoundRequests = on
	if on {
		newWatcher(pingEvery, silence, unacked).watch(config)
	}
}

// ForElection is config for the client of a leader election: a request fails after half
// the time in which the lease must be renewed. No other client may have a time-out: it would
// end watches. With the feature gate off it is config itself.
func ForElection(config *restclient.Config, renewDeadline time.Duration) *restclient.Config {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KCMSilentConnection) {
		return config
	}
	c := *config
	c.Timeout = renewDeadline / 2
	return &c
}

type watcher struct {
	every, silence, unacked time.Duration

	mu sync.Mutex
	// transports are those that report their connections: one for each kind of credentials.
	transports map[*http.Transport]bool
	// watched are the connections that are pinged, and what they may run on.
	watched map[*http2.ClientConn][]*conn
}

func newWatcher(every, silence, unacked time.Duration) *watcher {
	return &watcher{every: every, silence: silence, unacked: unacked, transports: map[*http.Transport]bool{}, watched: map[*http2.ClientConn][]*conn{}}
}

// watch sets the dialer of config, and finds by WrapTransport the transport that is made
// with it. Transports are cached by their dialer, so none of another config comes here.
func (w *watcher) watch(config *restclient.Config) {
	if config.Dial != nil || config.Transport != nil {
		return // somebody else's; a config of flags has neither
	}
	config.Dial = w.dial
	wrap := config.WrapTransport
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		if t, ok := rt.(*http.Transport); ok {
			w.follow(t)
		}
		if wrap != nil {
			rt = wrap(rt)
		}
		return rt
	}
}

// dial is that of client-go, with an end to what is not acknowledged.
func (w *watcher) dial(network, addr string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: 30 * time.Second,
		// On a connection without requests only probes are lost.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: w.every, Interval: w.every / 2, Count: 9},
		Control: func(_, _ string, c syscall.RawConn) error {
			var set error
			err := c.Control(func(fd uintptr) {
				set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(w.unacked/time.Millisecond))
			})
			if set != nil {
				glog.Warningf("cannot limit the time for which data is unacknowledged: %v", set)
			}
			return err
		},
	}
	c, err := d.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, made: time.Now()}, nil
}

// conn knows when something was last read from it.
type conn struct {
	net.Conn
	made time.Time
	read atomic.Int64 // nanoseconds since made
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.read.Store(int64(time.Since(c.made)))
	}
	return n, err
}

// silentFor is the time since something was last read.
func (c *conn) silentFor() time.Duration { return time.Since(c.made) - time.Duration(c.read.Load()) }

// follow has t report each connection that speaks HTTP/2.
func (w *watcher) follow(t *http.Transport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	upgrade, ok := t.TLSNextProto["h2"]
	if !ok || w.transports[t] {
		return // no HTTP/2, or followed already: it may be in use
	}
	w.transports[t] = true
	t.TLSNextProto["h2"] = func(authority string, c *tls.Conn) http.RoundTripper {
		rt := upgrade(authority, c)
		w.upgraded(rt, authority, c)
		return rt
	}
}

// upgraded begins to watch the connection that rt uses after c was offered to it. That is
// c, or one that was offered before or at the same time, and then rt closes c. Which one
// http2 does not tell.
func (w *watcher) upgraded(rt http.RoundTripper, authority string, c *tls.Conn) {
	raw, ok := c.NetConn().(*conn)
	if !ok {
		return // within the connection to a proxy that itself speaks TLS
	}
	if wrapped, ok := rt.(utilnet.RoundTripperWrapper); ok {
		rt = wrapped.WrappedRoundTripper()
	}
	t, ok := rt.(*http2.Transport)
	if !ok {
		return // the handshake failed
	}
	cc, err := t.ConnPool.GetClientConn(&http.Request{}, authority)
	if err != nil {
		return // it is gone
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched[cc] = append(w.watched[cc], raw); len(w.watched[cc]) == 1 {
		go w.pingUntilGone(cc)
	}
}

// offered is what cc may run on, and the time since something was last read from it.
func (w *watcher) offered(cc *http2.ClientConn) (conns []*conn, silent time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range w.watched[cc] {
		if s := c.silentFor(); i == 0 || s < silent {
			silent = s
		}
	}
	return w.watched[cc], silent
}

func (w *watcher) pingUntilGone(cc *http2.ClientConn) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, cc)
	}()
	for {
		time.Sleep(w.every)
		answer := make(chan error, 1)
		go func() { answer <- cc.Ping(context.Background()) }() // it may hang in the write
		for waiting, left := true, w.silence; waiting; {
			select {
			case err := <-answer:
				if err != nil {
					return // the connection has ended
				}
				waiting = false
			case <-time.After(left):
				// What comes in the place of an answer counts too: a long list on a slow
				// line is sent before it.
				conns, silent := w.offered(cc)
				if left = w.silence - silent; left > 0 {
					continue
				}
				glog.Warningf("closing the connection to the API server at %v: nothing came for %v, and no answer to a ping", conns[0].RemoteAddr(), silent)
				closed.Inc()
				for _, c := range conns {
					c.Close() // the requests on it fail, and the next one dials
				}
				return
			}
		}
	}
}
