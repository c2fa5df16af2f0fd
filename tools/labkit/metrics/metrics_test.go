// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const page = `# HELP a_total x
# TYPE a_total counter
a_total{type="*v1.Service",result="kept"} 3
a_total{type="*v1.Service",result="followed"} 4
a_total{type="*v1.Pod",result="kept"} 1e+1
# TYPE info gauge
info{release="1.7.0"} 1
bare 2.5
# TYPE latency summary
latency{quantile="0.5"} NaN
latency_sum 12
latency_count 7
# TYPE h histogram
h_bucket{le="+Inf"} 2
h_sum 3
h_count 2
`

func TestSum(t *testing.T) {
	p, err := Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		labels []string
		sum    float64
		n      int
	}{
		{"a_total", nil, 17, 3},
		{"a_total", []string{"result", "kept"}, 13, 2},
		{"a_total", []string{"type", "*v1.Service", "result", "kept"}, 3, 1},
		{"a_total", []string{"result", "none"}, 0, 0},
		{"a_tot", nil, 0, 0},
		{"info", []string{"release", "1.7.0"}, 1, 1},
		{"bare", nil, 2.5, 1},
		{"latency_count", nil, 7, 1},
		{"latency_sum", nil, 12, 1},
		{"latency", nil, 0, 0},
		{"h_count", nil, 2, 1},
		{"a_total_count", nil, 0, 0},
	} {
		if sum, n := p.Sum(c.name, c.labels...); sum != c.sum || n != c.n {
			t.Errorf("%s %q: %v of %d, want %v of %d", c.name, c.labels, sum, n, c.sum, c.n)
		}
	}
}

func TestGet(t *testing.T) {
	code, text := http.StatusOK, page
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}))
	defer srv.Close()
	if p, err := Get(context.Background(), srv.URL); err != nil || len(p) != 5 {
		t.Error(p, err)
	}
	text = "a{ 1\n"
	if _, err := Get(context.Background(), srv.URL); err == nil || !strings.Contains(err.Error(), srv.URL) {
		t.Error(err)
	}
	code, text = http.StatusForbidden, page
	if _, err := Get(context.Background(), srv.URL); err == nil || !strings.Contains(err.Error(), "403") {
		t.Error(err)
	}
}
