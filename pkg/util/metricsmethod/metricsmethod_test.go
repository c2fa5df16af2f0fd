// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsmethod

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// methods are those that have a series of http_requests_total.
func methods(t *testing.T) map[string]float64 {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "http_requests_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "method" {
					out[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func TestHandler(t *testing.T) {
	handler := Handler()
	serve := func(method string) {
		req := httptest.NewRequest("GET", "/metrics", nil)
		req.Method = method
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "go_goroutines") {
			t.Errorf("%s is answered %d: %.100s", method, w.Code, w.Body)
		}
		if req.Method != method {
			t.Errorf("the caller's request has method %q now, had %q", req.Method, method)
		}
	}
	for _, m := range []string{"GET", "PUT", "HEAD", "POST", "DELETE", "CONNECT", "OPTIONS", "NOTIFY", "TRACE", "PATCH", "get", "Get"} {
		label := strings.ToLower(m)
		before := methods(t)[label]
		serve(m)
		if n := methods(t)[label] - before; n != 1 {
			t.Errorf("%s: %v requests are counted as %q", m, n, label)
		}
	}
	if n := counted(t); n != 0 {
		t.Errorf("standard methods are counted %v times as unknown", n)
	}
	before := len(methods(t))
	for i := 0; i < 100; i++ {
		serve(fmt.Sprintf("EVIL%d", i))
	}
	after := methods(t)
	if len(after) != before+1 || after["unknown"] != 100 {
		t.Errorf("there were %d series and are %d: %v", before, len(after), after)
	}
	if n := counted(t); n != 100 {
		t.Errorf("holdfast_metrics_method_label_unknown_total is %v after 100 invented methods", n)
	}
}

func counted(t *testing.T) float64 {
	var m dto.Metric
	if err := unknownTotal.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
