// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
)

// Tap sees what passes a Proxy beyond what its log has. Both are called from several
// goroutines at a time, before the request goes on; either may be nil.
type Tap struct {
	// Request gets each request with its body, nil for one without.
	Request func(r *http.Request, body []byte)
	// Hello gets how each connection of a client begins.
	Hello func(*tls.ClientHelloInfo)
}

// SetTap has t see what passes from now on.
func (p *Proxy) SetTap(t Tap) { p.tap.Store(&t) }

func (p *Proxy) tapHello(h *tls.ClientHelloInfo) (*tls.Config, error) {
	if t := p.tap.Load(); t != nil && t.Hello != nil {
		t.Hello(h)
	}
	return nil, nil
}

// tapRequest reads the body of r, if it has one of a known end, and puts it back.
func (p *Proxy) tapRequest(r *http.Request) {
	t := p.tap.Load()
	if t == nil || t.Request == nil {
		return
	}
	if r.ContentLength == 0 || r.Header.Get("Upgrade") != "" {
		t.Request(r, nil)
		return
	}
	body, err := io.ReadAll(r.Body)
	rest := io.Reader(bytes.NewReader(body))
	if err != nil { // the server sees what came, and that it broke off
		rest = io.MultiReader(rest, brokenOff{err})
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{rest, r.Body}
	t.Request(r, body)
}

type brokenOff struct{ err error }

func (b brokenOff) Read([]byte) (int, error) { return 0, b.err }
