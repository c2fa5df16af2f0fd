// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// TestTap: a tap sees bodies, and the server gets them all the same.
func TestTap(t *testing.T) {
	p, front := newProxy(t)
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	defer back.Close()
	u, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.backend = u
	var mu sync.Mutex
	var seen []string
	post := func(body string) string {
		t.Helper()
		resp, err := http.Post(front+"/a", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := post("before"); got != "before" {
		t.Errorf("without a tap the server got %q", got)
	}
	p.SetTap(Tap{Request: func(r *http.Request, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.URL.Path+" "+string(body))
	}})
	for _, body := range []string{"one", ""} {
		if got := post(body); got != body {
			t.Errorf("the server got %q, want %q", got, body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(seen, ","); got != "/a one,/a " {
		t.Errorf("the tap saw %q", got)
	}
}
