// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/webhook/internal/rules"
)

// bench is a request with n addresses, of which every tenth is moved.
func bench(n int) (string, *fake) {
	var l []string
	j := &fake{by: map[string]Decision{}}
	for i := range n {
		uid := fmt.Sprintf("0a1b2c3d-0000-11e8-8000-%012d", i)
		l = append(l, fmt.Sprintf(`{"ip":"10.%d.%d.%d","nodeName":"node-%d.example.com","targetRef":{"kind":"Pod","namespace":"default","name":"web-1234567890-%05d","uid":"%s","resourceVersion":"%d"}}`, i>>16, i>>8&255, i&255, i%100, i, uid, 1000000+i))
		if i%10 == 0 {
			j.by[uid] = decided(rules.NotReady, "image-pending")
		}
	}
	o := endpoints("", `[{"addresses":[`+strings.Join(l, ",")+`],"ports":[{"name":"http","port":80,"protocol":"TCP"}]}]`)
	return review("v1beta1", o, o), j
}

// sink takes an answer's body and forgets it.
type sink struct {
	header http.Header
	code   int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(code int)        { s.code = code }

// cpu is the time that the process has had so far.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkReview(b *testing.B) {
	for _, n := range []int{50, 500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body, j := bench(n)
			h := NewHandler(j, slog.New(slog.DiscardHandler), func(string, time.Duration, Result) {})
			h.Deadline = time.Minute
			if code, r := post(h, body); code != 200 || r.Response.Patch == nil {
				b.Fatal(code)
			}
			var took []time.Duration
			b.ReportAllocs()
			used := cpu()
			for b.Loop() {
				r, w := httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(body)), &sink{header: http.Header{}}
				start := time.Now()
				h.ServeHTTP(w, r)
				took = append(took, time.Since(start))
				if w.code != 200 {
					b.Fatal(w.code)
				}
			}
			used = cpu() - used
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(used.Microseconds())/1000/float64(len(took)), "cpu-ms") // also of the collector
			b.ReportMetric(float64(len(body))/1e6, "MB")
		})
	}
}
