// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor

import (
	"sync"

	"github.com/golang/glog"
)

// CounterMetric is a number that only goes up.
type CounterMetric interface {
	Inc()
}

// MetricsProvider makes the metrics of this package.
type MetricsProvider interface {
	// NewRegressionsMetric returns the counter of the events that carried an older
	// resourceVersion than the cursor. expectedType is the Go type that the
	// reflector watches, such as "*v1.Service". kept is true when the cursor stayed
	// where it was, and false when the rule was off and the cursor followed.
	NewRegressionsMetric(expectedType string, kept bool) CounterMetric
}

type noopMetric struct{}

func (noopMetric) Inc() {}

type noopMetricsProvider struct{}

func (noopMetricsProvider) NewRegressionsMetric(string, bool) CounterMetric { return noopMetric{} }

// settings are what the binary has connected. They are set while it starts and read
// by every reflector at the start of every watch.
var settings = struct {
	sync.RWMutex
	enabled       func() bool
	metrics       MetricsProvider
	serverVersion func() string
	warningf      func(format string, args ...interface{})
}{
	enabled:       func() bool { return true },
	metrics:       noopMetricsProvider{},
	serverVersion: func() string { return "unknown" },
	warningf:      glog.Warningf,
}

// SetEnabledFunc sets the question that every watch asks when it starts: is the rule
// on? It is a function and not a value because a binary links its settings in init,
// before it has parsed its flags. One answer holds for the whole watch.
func SetEnabledFunc(enabled func() bool) {
	settings.Lock()
	defer settings.Unlock()
	settings.enabled = enabled
}

// SetMetricsProvider sets the provider of the metrics of all watches that start
// later.
func SetMetricsProvider(provider MetricsProvider) {
	settings.Lock()
	defer settings.Unlock()
	settings.metrics = provider
}

// SetServerVersionFunc sets the function that names the version of the API server
// in the warning, such as "v1.9.0". It is called at most once a watch, only if there
// is something to warn of, and from a goroutine of its own, so it may ask the
// server; it must return in finite time.
func SetServerVersionFunc(serverVersion func() string) {
	settings.Lock()
	defer settings.Unlock()
	settings.serverVersion = serverVersion
}
