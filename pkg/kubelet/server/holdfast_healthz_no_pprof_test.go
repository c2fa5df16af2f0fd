// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

func TestHealthzHandler(t *testing.T) {
	healthz.DefaultHealthz()
	refused := func() float64 {
		var m dto.Metric
		if err := healthzRefused.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletHealthzOwnMux, on)()
			server := httptest.NewUnstartedServer(nil)
			server.Config.Handler = HealthzHandler() // nil is the default mux, as in stock
			server.Start()
			defer server.Close()
			before := refused()
			for path, stock := range map[string]int{
				"/healthz": 200, "/healthz/ping": 200, "/healthz/other": 404, "/": 404,
				"/debug/pprof/": 200, "/debug/pprof/cmdline": 200, "/debug/pprof/heap": 200,
			} {
				want := stock
				if on && len(path) > 6 && path[:6] == "/debug" {
					want = 404
				}
				resp, err := http.Get(server.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("gate %v: %s answers %d, want %d", on, path, resp.StatusCode, want)
				}
			}
			if n := refused() - before; on && n != 3 || !on && n != 0 {
				t.Errorf("gate %v: %v requests counted", on, n)
			}
		}()
	}
}
