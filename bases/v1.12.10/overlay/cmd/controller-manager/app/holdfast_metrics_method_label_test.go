// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apiserverconfig "k8s.io/apiserver/pkg/apis/config"
)

// requestSeries is how many series the metric http_requests_total has.
func requestSeries(t *testing.T) int {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "http_requests_total" {
			return len(f.Metric)
		}
	}
	return 0
}

// TestMetricsMethodLabel: invented methods are one series of the controller manager's /metrics.
func TestMetricsMethodLabel(t *testing.T) {
	handler := NewBaseHandler(&apiserverconfig.DebuggingConfiguration{})
	send := func(method string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		if w.Code != 200 {
			t.Errorf("%s is answered %d", method, w.Code)
		}
	}
	send("GET")
	before := requestSeries(t)
	if before == 0 {
		t.Error("there is no series")
	}
	for i := 0; i < 100; i++ {
		send(fmt.Sprintf("INVENTED%d", i))
	}
	if n := requestSeries(t) - before; n > 1 {
		t.Errorf("100 invented methods made %d series", n)
	}
}
