// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// The decoder is in apimachinery, which has no metrics. Both programs link this package.
func init() {
	prometheus.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "holdfast_protobuf_decode_guard_malformed_total",
		Help: "Protobuf messages that made a generated decoder panic. Each is an error of its request or watch.",
	}, func() float64 { return float64(protobuf.MalformedMessages()) }))
}
