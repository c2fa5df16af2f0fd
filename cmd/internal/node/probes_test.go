// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// answers is a server that answers each request with the bytes, and counts them.
func answers(t *testing.T, bytes string) (port int, requests *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	requests = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				requests.Add(1)
				fmt.Fprint(c, bytes)
			}
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, requests
}

// nodeWith is a node whose API server has the pods, and asks what its check says of probes.
func nodeWith(t *testing.T, pods ...any) (codes, texts []string, ok string) {
	f := newFake(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("fieldSelector"); got != "spec.nodeName=n1" {
			t.Errorf("asked for %q", got)
		}
		_ = json.NewEncoder(w).Encode(object{"kind": "PodList", "items": pods})
	}))
	t.Cleanup(s.Close)
	f.kubeconfig(s.URL)
	f.extra("--hostname-override=n1")
	m, _ := f.check(t)
	m.rows, m.o.Probe = nil, true
	m.judgeProbes(context.Background(), version{holdfast: true})
	for _, r := range m.rows {
		ok = r.ok
	}
	for _, x := range m.findings() {
		codes, texts = append(codes, x.Code), append(texts, x.Text)
	}
	return codes, texts, ok
}

type object = map[string]any

func podOf(probe string, get object) object {
	c := object{"name": "app", "ports": []any{object{"name": "web", "containerPort": get["named"]}}}
	switch probe {
	case "postStart":
		c["lifecycle"] = object{probe: object{"httpGet": get}}
	default:
		c[probe] = object{"httpGet": get}
	}
	return object{"metadata": object{"namespace": "default", "name": "a"}, "spec": object{"containers": []any{c}}, "status": object{"phase": "Running", "podIP": "127.0.0.1"}}
}

// TestProbes: an answer that today's Go refuses is found, one that every kubelet takes or none does is not.
func TestProbes(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"good":             {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", ""},
		"refused for all":  {"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n", ""},
		"redirect":         {"HTTP/1.1 302 no\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", ""},
		"closed":           {"", ""},
		"half":             {"HTTP/1.1 200 OK\r\nA: b", ""},
		"identity":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nx", "unsupported transfer encoding"},
		"sign":             {"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", "Content-Length"},
		"header's name":    {"HTTP/1.1 200 OK\r\na[b]: c\r\n\r\n", "malformed"},
		"no name":          {"HTTP/1.1 200 OK\r\n: c\r\n\r\n", "malformed"},
		"two encodings":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "too many transfer encodings"},
		"long, one answer": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + strings.Repeat("x", 1e5) + "\r\n\r\n", "unsupported transfer encoding"},
	} {
		port, requests := answers(t, c.answer)
		codes, texts, ok := nodeWith(t, podOf("livenessProbe", object{"port": port, "path": "/x"}), podOf("readinessProbe", object{"port": "web", "named": port}))
		if c.want == "" {
			if len(codes) > 0 || !strings.HasPrefix(ok, "2 sent") {
				t.Errorf("%s: %v %q, ok %q", name, codes, texts, ok)
			}
		} else if len(codes) != 2 || codes[0] != "HF533" || !strings.Contains(texts[0], c.want) || !strings.HasPrefix(texts[0], `default/a, liveness probe of "app": `) || len(texts[0]) > 300 {
			t.Errorf("%s: %v %q", name, codes, texts)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// What is not asked: hooks, other hosts, pods that do not run; and nothing without --probe.
func TestProbesNotAsked(t *testing.T) {
	port, requests := answers(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n")
	ended := podOf("livenessProbe", object{"port": port})
	ended["status"] = object{"phase": "Succeeded", "podIP": "127.0.0.1"}
	codes, texts, ok := nodeWith(t, ended, podOf("postStart", object{"port": port}), podOf("livenessProbe", object{"port": port, "host": "127.0.0.2"}), podOf("livenessProbe", object{"port": 0}), podOf("livenessProbe", object{"port": "none"}))
	if len(codes) > 0 || ok != "0 sent, Holdfast accepts the answers; 1 to other hosts, or beyond the limit, were not sent" || requests.Load() != 0 {
		t.Errorf("%v %q, ok %q, %d requests", codes, texts, ok, requests.Load())
	}
	codes, texts, _ = nodeWith(t, podOf("postStart", object{"port": port, "path": "/x\n"}))
	if len(codes) != 1 || !strings.Contains(texts[0], `postStart hook of "app": its path "/x\n" has a control byte`) || requests.Load() != 0 {
		t.Errorf("a newline: %v %q", codes, texts)
	}
	var many []any
	for range 30 {
		many = append(many, podOf("livenessProbe", object{"port": port, "path": "/\x01"}))
	}
	codes, texts, _ = nodeWith(t, many...)
	if len(codes) != maxProbeLines+1 || texts[maxProbeLines] != "10 more" {
		t.Errorf("many: %d %q", len(codes), texts)
	}
	f := newFake(t)
	m, _ := f.check(t)
	m.rows = nil
	if m.judgeProbes(context.Background(), version{holdfast: true}); len(m.rows) > 0 {
		t.Errorf("without --probe: %v", m.rows)
	}
}
