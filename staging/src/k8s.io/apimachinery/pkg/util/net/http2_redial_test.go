// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package net

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// conns are the connections that a transport has dialled.
type conns struct {
	sync.Mutex
	all []net.Conn
}

func (c *conns) dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	c.Lock()
	defer c.Unlock()
	c.all = append(c.all, conn)
	return conn, err
}

func (c *conns) close() {
	c.Lock()
	defer c.Unlock()
	for _, conn := range c.all {
		conn.Close()
	}
	c.all = nil
}

// TestHTTP2Redial loses the connection to the server in each way that a client of the API
// server knows. A request that was under way, or the first one after it, may fail; after that
// the transport has to be back, by HTTP/2.
func TestHTTP2Redial(t *testing.T) {
	started := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			w.(http.Flusher).Flush()
			started <- struct{}{}
			<-r.Context().Done()
		}
		w.Header().Set("Proto", r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	dialled := &conns{}
	transport := SetTransportDefaults(&http.Transport{Dial: dialled.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	get := func(path string) (string, error) {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		return resp.Header.Get("Proto"), nil
	}
	watch := func(lose func()) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if resp, err := client.Get(server.URL + "/watch"); err == nil {
				resp.Body.Read(make([]byte, 1))
				resp.Body.Close()
			}
		}()
		<-started
		lose()
		<-ended
	}
	for _, tt := range []struct {
		name string
		lose func()
	}{
		{"the server ends its connections", server.CloseClientConnections},
		{"the kubelet closes its own", dialled.close},
		{"the server's, under a watch", func() { watch(server.CloseClientConnections) }},
		{"the kubelet's, under a watch", func() { watch(dialled.close) }},
		{"idle connections are closed", transport.CloseIdleConnections},
	} {
		if proto, err := get("/"); err != nil || proto != "HTTP/2.0" {
			t.Fatalf("before %s: %q, %v", tt.name, proto, err)
		}
		tt.lose()
		var proto string
		var err error
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if proto, err = get("/"); err == nil {
				break
			}
		}
		if err != nil || proto != "HTTP/2.0" {
			t.Errorf("%s: 5 s later a request has %q, %v", tt.name, proto, err)
		}
	}
}
