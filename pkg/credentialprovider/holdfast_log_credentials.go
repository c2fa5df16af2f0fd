// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package credentialprovider

import (
	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
)

var configsWithheld = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_log_credentials_configs_withheld_total",
	Help: "Docker config files that could not be parsed and whose content was kept out of the log.",
})

func init() {
	prometheus.MustRegister(configsWithheld)
}

// logMalformedConfig logs a docker config file that cannot be parsed by its size: the content
// has passwords (CVE-2020-8564).
func logMalformedConfig(contents []byte, err error) {
	configsWithheld.Inc()
	glog.Errorf("while trying to parse a docker config of %d bytes: %v", len(contents), err)
}
