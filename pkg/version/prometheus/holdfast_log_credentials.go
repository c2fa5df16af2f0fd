// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/transport"
)

// The headers are logged by client-go, which has no metrics. Both programs link this package.
func init() {
	prometheus.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "holdfast_log_credentials_headers_masked_total",
		Help: "Credentials in headers of requests to the API server that were masked for the log, at -v=6 and more.",
	}, func() float64 { return float64(transport.CredentialsMasked()) }))
}
