// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	refused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	reset   = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
)

// TestPatient: while a component is away, requests are repeated that can be, with their body.
func TestPatient(t *testing.T) {
	answer := func(code int, body string) any {
		return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body))}
	}
	for what, c := range map[string]struct {
		method string
		first  func() any
		tries  int32
	}{
		"GET, refused":             {"GET", func() any { return refused }, 2},
		"GET, reset":               {"GET", func() any { return reset }, 2},
		"GET, 500":                 {"GET", func() any { return answer(500, "") }, 2},
		"GET, 404":                 {"GET", func() any { return answer(404, "") }, 1},
		"GET, 403":                 {"GET", func() any { return answer(403, "no") }, 1},
		"POST, refused":            {"POST", func() any { return refused }, 2},
		"POST, reset":              {"POST", func() any { return reset }, 1},
		"POST, 500":                {"POST", func() any { return answer(500, "context deadline exceeded") }, 1},
		"POST, etcd is away":       {"POST", func() any { return answer(500, "rpc error: grpc: the connection is unavailable") }, 2},
		"POST, caches are missing": {"POST", func() any { return answer(403, "not yet ready to handle request") }, 2},
		"PATCH, 409":               {"PATCH", func() any { return answer(409, "") }, 1},
	} {
		for _, disturbed := range []bool{true, false} {
			var tries atomic.Int32
			p := &patient{disturbed: func() bool { return disturbed }, next: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Body != nil {
					if b, _ := io.ReadAll(r.Body); string(b) != "body" {
						t.Errorf("%s: the body is %q", what, b)
					}
				}
				if tries.Add(1) > 1 {
					return answer(200, "fine").(*http.Response), nil
				}
				switch a := c.first().(type) {
				case error:
					return nil, a
				default:
					return a.(*http.Response), nil
				}
			})}
			var body io.Reader
			if c.method != "GET" {
				body = strings.NewReader("body")
			}
			r, err := http.NewRequest(c.method, "http://x/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := p.RoundTrip(r)
			want := c.tries
			if !disturbed {
				want = 1
			}
			if tries.Load() != want || want == 2 && (err != nil || resp.StatusCode != 200) {
				t.Errorf("%s, disturbed %v: %d tries, %v, %v", what, disturbed, tries.Load(), resp, err)
			}
			if resp != nil { // it can be read, also if the reason was looked for in it
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	}
}

// TestPatientWrites: a write that broke is sent again only if it has its effect once, and the
// answer is as if it had not broken.
func TestPatientWrites(t *testing.T) {
	type sent struct{ method, path string }
	const merge, jsonPatch = "application/merge-patch+json", "application/json-patch+json"
	const named, generated = `{"metadata":{"name":"a"}}`, `{"metadata":{"generateName":"a-"}}`
	for what, c := range map[string]struct {
		method, kind, body string
		second             int // the answer to the second try
		code               int // what the client sees; 0: the error of the first
		tries              []sent
	}{
		"merge patch":            {"PATCH", merge, "{}", 200, 200, []sent{{"PATCH", "/x"}, {"PATCH", "/x"}}},
		"JSON patch":             {"PATCH", jsonPatch, "[]", 200, 0, []sent{{"PATCH", "/x"}}},
		"update":                 {"PUT", "", named, 200, 0, []sent{{"PUT", "/x"}}},
		"create, not done yet":   {"POST", "", named, 201, 201, []sent{{"POST", "/x"}, {"POST", "/x"}}},
		"create, done":           {"POST", "", named, 409, 201, []sent{{"POST", "/x"}, {"POST", "/x"}, {"GET", "/x/a"}}},
		"create, no name":        {"POST", "", generated, 201, 0, []sent{{"POST", "/x"}}},
		"rollback":               {"POST", "", `{"name":"x","metadata":{"name":"b"}}`, 200, 0, []sent{{"POST", "/b/rollback"}}},
		"delete":                 {"DELETE", "", "", 200, 0, []sent{{"DELETE", "/x"}}},
		"merge patch, conflict":  {"PATCH", merge, "{}", 409, 409, []sent{{"PATCH", "/x"}, {"PATCH", "/x"}}},
		"merge patch, not found": {"PATCH", merge, "{}", 404, 404, []sent{{"PATCH", "/x"}, {"PATCH", "/x"}}},
	} {
		var tries []sent
		p := &patient{disturbed: func() bool { return true }, next: roundTripper(func(r *http.Request) (*http.Response, error) {
			tries = append(tries, sent{r.Method, r.URL.Path})
			code := http.StatusOK
			switch len(tries) {
			case 1:
				return nil, reset
			case 2:
				code = c.second
			}
			return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})}
		r, err := http.NewRequest(c.method, "http://x"+c.tries[0].path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", c.kind)
		resp, err := p.RoundTrip(r)
		code := 0
		if err == nil {
			code = resp.StatusCode
		}
		if code != c.code || !slices.Equal(tries, c.tries) {
			t.Errorf("%s: %d (%v), sent %v", what, code, err, tries)
		}
	}
}

func TestPatientHonoursItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	p := &patient{disturbed: func() bool { return true }, next: roundTripper(func(*http.Request) (*http.Response, error) { return nil, refused })}
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://x/", nil)
	began := time.Now()
	if _, err := p.RoundTrip(r); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
