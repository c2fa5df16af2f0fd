// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"strings"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
)

var configsRefused = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_cni_plugin_name_refused_total",
	Help: "CNI configuration files that were left out, as the name of a plugin has a separator.",
})

func init() {
	prometheus.MustRegister(configsRefused)
}

// refused are the files that were counted and logged; the kubelet reads them again and again.
var refused = struct {
	sync.Mutex
	files map[string]bool
}{files: map[string]bool{}}

// hasPlainPluginNames says whether no plugin of a CNI configuration is named by a path.
// The kubelet joins a plugin's type to the folders of the plugins, so that a separator leads
// out of them (CVE-2021-20206).
func hasPlainPluginNames(file string, list *libcni.NetworkConfigList) bool {
	for _, plugin := range list.Plugins {
		name := plugin.Network.Type
		if !strings.ContainsAny(name, `/\`) {
			continue
		}
		refused.Lock()
		defer refused.Unlock()
		if !refused.files[file] {
			refused.files[file] = true
			configsRefused.Inc()
			glog.Errorf("CNI configuration %s is left out: the type %q of a plugin must be the name of a file, without a separator", file, name)
		}
		return false
	}
	return true
}
