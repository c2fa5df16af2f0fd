// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package http

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/kubernetes/pkg/util/outputlimit"
)

// TestProbeOutputLimits: the result does not depend on the limit, what is kept does.
func TestProbeOutputLimits(t *testing.T) {
	const mib = 1 << 20
	handler := func(size int, status int, end string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch end {
			case "short":
				w.Header().Set("Content-Length", fmt.Sprint(size+1))
			case "":
				w.Header().Set("Content-Length", fmt.Sprint(size))
			}
			w.WriteHeader(status)
			if end != "" {
				w.(http.Flusher).Flush() // without a length: chunked
			}
			for chunk, left := make([]byte, 64<<10), size; left > 0; left -= len(chunk) {
				if left < len(chunk) {
					chunk = chunk[:left]
				}
				w.Write(chunk)
			}
			if end == "slow" {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		}
	}
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		want    probe.Result
		size    int
	}{
		{"1 B", handler(1, 200, ""), probe.Success, 1},
		{"10 KiB", handler(10<<10, 200, ""), probe.Success, 10 << 10},
		{"10 KiB and 1 B", handler(10<<10+1, 200, ""), probe.Success, 10<<10 + 1},
		{"10 MiB", handler(10*mib, 200, ""), probe.Success, 10 * mib},
		{"10 MiB chunked", handler(10*mib, 200, "chunked"), probe.Success, 10 * mib},
		{"10 MiB of an error", handler(10*mib, 500, ""), probe.Failure, 0},
		{"10 MiB that break off", handler(10*mib, 200, "short"), probe.Failure, 0},
	} {
		server := httptest.NewServer(tc.handler)
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, on := range []bool{true, false} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, on)()
				result, body, _ := New().Probe(u, nil, 20*time.Second)
				want := tc.size
				if on && want > outputlimit.HTTPBody {
					want = outputlimit.HTTPBody
				}
				if result != tc.want || tc.want == probe.Success && len(body) != want {
					t.Errorf("%s, gate %v: %s with %d bytes, want %s with %d", tc.name, on, result, len(body), tc.want, want)
				}
			}()
		}
		server.Close()
	}
	// An answer that does not end is a failure when the time is over, as it was.
	server := httptest.NewServer(handler(20<<10, 200, "slow"))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	if result, _, _ := New().Probe(u, nil, 300*time.Millisecond); result != probe.Failure {
		t.Errorf("an answer without an end: %s", result)
	}
}

// TestProbeSender: all requests of a probe, a redirect's too, know whose it is.
func TestProbeSender(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/elsewhere" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var senders []string
	p := New().(httpProber)
	p.transport.Proxy = func(req *http.Request) (*url.URL, error) {
		senders = append(senders, req.URL.Path+" "+outputlimit.Sender(req))
		return nil, nil
	}
	if result, _, err := OfContainer(p, "uid/c").Probe(u, nil, 20*time.Second); result != probe.Success || err != nil {
		t.Errorf("%v, %v", result, err)
	}
	if want := []string{" uid/c", "/elsewhere uid/c"}; !reflect.DeepEqual(senders, want) {
		t.Errorf("requests %q, want %q", senders, want)
	}
}
