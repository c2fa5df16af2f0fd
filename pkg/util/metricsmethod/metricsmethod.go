// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsmethod serves /metrics without a series for each HTTP method that a
// client invents (CVE-2022-21698). prometheus.Handler counts its own requests by method
// and keeps each method for as long as the process lives.
package metricsmethod

import (
	"net/http"
	"strings"
	"sync"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	unknownTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_metrics_method_label_unknown_total",
		Help: "Requests for /metrics whose HTTP method is not standard and is counted as \"unknown\".",
	})
	unknownOnce sync.Once
)

func init() {
	prometheus.MustRegister(unknownTotal)
}

// unknown is what methods that are not standard are counted as: client_golang's label
// since 1.11.1.
const unknown = "unknown"

// standard are the methods that keep their label: those that client_golang 1.11.1 knows.
var standard = map[string]bool{
	"get": true, "put": true, "head": true, "post": true, "delete": true, "connect": true,
	"options": true, "notify": true, "trace": true, "patch": true,
}

// Handler is prometheus.Handler for standard methods. It answers other methods alike
// and counts them as one. The first one is logged: whoever sends them chooses the
// method and has more than one address, so there is no object to log once for.
func Handler() http.Handler {
	handler := prometheus.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !standard[strings.ToLower(req.Method)] {
			unknownTotal.Inc()
			unknownOnce.Do(func() {
				glog.Warningf("A request for /metrics from %s has the HTTP method %.32q: it and other methods that are not standard are counted as %q", req.RemoteAddr, req.Method, unknown)
			})
			req = req.WithContext(req.Context()) // a copy
			req.Method = unknown
		}
		handler.ServeHTTP(w, req)
	})
}
