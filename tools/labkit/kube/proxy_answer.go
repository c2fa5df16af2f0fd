// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import "net/http"

// instead answers requests in the API server's place.
type instead struct {
	left, given int
	matches     func(*http.Request) bool
	answer      http.HandlerFunc
}

// Answer has the next n requests that match, none of them a watch, answered by answer:
// they are not passed on, and not counted. An earlier call's ends. given is how many of
// the n were answered so far.
func (p *Proxy) Answer(n int, matches func(*http.Request) bool, answer http.HandlerFunc) (given func() int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := &instead{left: n, matches: matches, answer: answer}
	p.instead = mine
	return func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return mine.given
	}
}

// answered says whether r was answered here.
func (p *Proxy) answered(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	i := p.instead
	if i == nil || i.left == 0 || !i.matches(r) {
		p.mu.Unlock()
		return false
	}
	i.left--
	p.mu.Unlock()
	i.answer(w, r)
	p.mu.Lock()
	i.given++
	p.mu.Unlock()
	return true
}
