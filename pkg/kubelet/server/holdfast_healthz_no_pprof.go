// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"sync"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var (
	healthzRefused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_healthz_no_pprof_refused_total",
		Help: "Requests to the healthz port answered with 404 that a stock kubelet would have served (profiles and the like).",
	})
	healthzRefusedOnce sync.Once
)

func init() {
	prometheus.MustRegister(healthzRefused)
}

// HealthzHandler is what the healthz port serves: /healthz and nothing else. Stock
// passes nil, which is http.DefaultServeMux, where net/http/pprof and others register
// themselves on import.
func HealthzHandler() http.Handler {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletHealthzOwnMux) {
		return nil
	}
	mux := http.NewServeMux()
	healthz.InstallHandler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, own := mux.Handler(req); own == "" {
			if _, stock := http.DefaultServeMux.Handler(req); stock != "" {
				healthzRefused.Inc()
				healthzRefusedOnce.Do(func() {
					glog.Warningf("The healthz port refuses %s to %s, and whatever else is not /healthz from now on: port 10250 serves profiles to whom --anonymous-auth and --authorization-mode admit (feature gate %s)",
						stock, req.RemoteAddr, features.KubeletHealthzOwnMux)
				})
			}
		}
		mux.ServeHTTP(w, req)
	})
}
