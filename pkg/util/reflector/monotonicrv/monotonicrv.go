// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monotonicrv connects client-go's rvcursor to the feature gates, the
// metrics and the API client of a Kubernetes binary. Importing it connects the first
// two; UseServerVersion connects the third.
package monotonicrv

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache/rvcursor"
	"k8s.io/kubernetes/pkg/features"

	"github.com/prometheus/client_golang/prometheus"
)

// versionTimeout bounds the request that only serves a log line.
const versionTimeout = 10 * time.Second

var regressions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_reflector_monotonic_rv_regressions_total",
	Help: "Watch events with an older resourceVersion than one received before in the same watch, by the Go type that the reflector watches and by what the place to restart the watch did: kept or followed (feature gate ReflectorMonotonicResourceVersion off).",
}, []string{"type", "result"})

type prometheusMetricsProvider struct{}

func (prometheusMetricsProvider) NewRegressionsMetric(expectedType string, kept bool) rvcursor.CounterMetric {
	result := "followed"
	if kept {
		result = "kept"
	}
	return regressions.WithLabelValues(expectedType, result)
}

func init() {
	prometheus.MustRegister(regressions)
	rvcursor.SetMetricsProvider(prometheusMetricsProvider{})
	rvcursor.SetEnabledFunc(func() bool {
		return utilfeature.DefaultFeatureGate.Enabled(features.ReflectorMonotonicResourceVersion)
	})
}

// UseServerVersion lets the warnings name the version of the API server that client
// talks to; a nil client changes nothing. It sends no request before there is
// something to warn of. Behind a load balancer the server that answers need not be
// the one that sent the event.
func UseServerVersion(client clientset.Interface) {
	if client == nil {
		return
	}
	rvcursor.SetServerVersionFunc(func() string {
		v, err := serverVersion(client)
		if err != nil {
			return fmt.Sprintf("unknown (%v)", err)
		}
		return v
	})
}

func serverVersion(client clientset.Interface) (string, error) {
	// The kubelet passes on a nil *Clientset when its kubeconfig is unusable.
	discovery := client.Discovery()
	if discovery == nil {
		return "", fmt.Errorf("no client")
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	body, err := discovery.RESTClient().Get().Context(ctx).AbsPath("/version").Do().Raw()
	if err != nil {
		return "", err
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("/version: %v", err)
	}
	return info.GitVersion, nil
}
