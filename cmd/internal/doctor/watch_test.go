// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// flap sends events of addresses that go and come. The watch ends with it, and the list after it does
// not have q.
func flap(send func(kind string, o object), p, q object) {
	send("MODIFIED", fakeEndpoints("shop", "web", q))
	send("DELETED", fakeEndpoints("shop", "web", q))
	send("ADDED", fakeEndpoints("shop", "web", p, q))
	send("MODIFIED", fakeEndpoints("shop", "web"))
	send("MODIFIED", fakeEndpoints("shop", "web", p, q))
	send("MODIFIED", fakeEndpoints("shop", "other", p))
	send("DELETED", fakeEndpoints("shop", "other", p))
	send("ERROR", object{"kind": "Status", "message": secret})
}

// An address that goes off, on and off is a finding; one that goes once is not.
func TestWatch(t *testing.T) {
	f := well()
	p, q := f.lists["pods"][0], fakePod("shop", "web-2", "node1", "10.1.0.2", true)
	var once sync.Once
	f.watched = func(send func(kind string, o object)) { once.Do(func() { flap(send, p, q) }) }
	out, _, status := f.doctor(t, "-o", "json", "--fail-on", "warn", "--watch", "2s")
	got := found(t, out, "finding")
	if status != 3 || len(got) != 1 || got[0]["object"] != "service shop/web" || got[0]["code"] != "HF603" || !strings.Contains(got[0]["text"].(string), "web-1 (left 2 times), web-2 (left 3 times)") {
		t.Errorf("status %d\n%s", status, out)
	}
	// One that goes once, and events of no use.
	f = well()
	once = sync.Once{}
	f.watched = func(send func(kind string, o object)) {
		once.Do(func() {
			send("MODIFIED", fakeEndpoints("shop", "web"))
			send("MODIFIED", fakeEndpoints("shop", "web", p))
			send("BOOKMARK", object{"metadata": secret})
		})
	}
	if out, _, status := f.doctor(t, "--watch", "1s"); status != 0 || !strings.HasSuffix(out, "nothing found\n") {
		t.Errorf("status %d\n%s", status, out)
	}
	// No right to list, and a list without a version.
	for _, raw := range []string{"403 " + secret, `{"kind":"List","metadata":{},"items":[]}`} {
		f = well()
		f.raw["/api/v1/endpoints"] = raw
		out, _, _ := f.doctor(t, "-o", "json", "--watch", "1s")
		if !slices.Contains(codes(t, out), "? HF603 endpoints") {
			t.Errorf("%s\n%s", raw, out)
		}
	}
}

// What is followed is bounded, whatever the API server sends.
func TestWatchBounds(t *testing.T) {
	f := newFlaps()
	for i := range maxAddresses + 5 {
		f.see("a/b", []address{{ip: fmt.Sprint(i)}})
		if i > 20 { // only the first is of interest, and each event costs what there is
			f.of["a/b"] = f.of["a/b"][:1]
		}
	}
	if len(f.all) != maxAddresses || !f.full || len(f.findings(0, 0)) != 1 {
		t.Errorf("%d addresses, %t, %v", len(f.all), f.full, f.findings(0, 0))
	}
	var sent atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("watch") == "" {
			fmt.Fprint(w, `{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}`)
			return
		}
		fmt.Fprint(w, `{"type":"`)
		chunk := strings.Repeat("x", 1<<20)
		for sent.Load() < 1<<30 && r.Context().Err() == nil {
			n, err := fmt.Fprint(w, chunk)
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}))
	defer s.Close()
	if err := newFlaps().once(t.Context(), client(t, s.URL)); err != nil {
		t.Error(err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of one event were read", n)
	}
}
