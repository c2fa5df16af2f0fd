// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// requestSeries are the methods that the metric http_requests_total has.
func requestSeries(t *testing.T) map[string]bool {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "http_requests_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "method" {
					out[l.GetValue()] = true
				}
			}
		}
	}
	return out
}

func TestMetricsMethodLabel(t *testing.T) {
	fw := newServerTest()
	defer fw.testHTTPServer.Close()
	send := func(method string) {
		req, err := http.NewRequest(method, fw.testHTTPServer.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s is answered %d", method, resp.StatusCode)
		}
	}
	send("GET")
	send("PATCH")
	before := requestSeries(t)
	if !before["get"] || !before["patch"] {
		t.Errorf("methods %v, want get and patch", before)
	}
	for i := 0; i < 100; i++ {
		send(fmt.Sprintf("INVENTED%d", i))
	}
	if n := len(requestSeries(t)) - len(before); n > 1 {
		t.Errorf("100 invented methods made %d series", n)
	}
}
