// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
)

// The files are created by glog, which has no metrics. Both programs link this package.
func init() {
	prometheus.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "holdfast_glog_no_follow_replaced_total",
		Help: "Files and links that stood under the name of a new log file and were removed.",
	}, func() float64 { return float64(glog.LogFilesReplaced()) }))
}
