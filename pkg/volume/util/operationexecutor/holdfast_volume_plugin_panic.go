// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import (
	"fmt"
	"runtime/debug"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/volume"
)

// The functions that an OperationGenerator makes run in a goroutine of their own, which
// recovers. Making them calls volume plugins too, in the one goroutine that looks after
// all volumes: NewMounter, NewAttacher and the like read what a pod's author wrote.

var pluginPanics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_volume_plugin_panic_recovered_total",
	Help: "Panics of volume plugins that became the error of one volume, by operation.",
}, []string{"operation"})

func init() {
	prometheus.MustRegister(pluginPanics)
}

// recoverPlugin, deferred, makes a panic the error *err. The log has the stack: at most
// as often as the operation is tried again, which backs off.
func recoverPlugin(operation string, err *error) {
	r := recover()
	if r == nil {
		return
	}
	pluginPanics.WithLabelValues(operation).Inc()
	*err = fmt.Errorf("the volume plugin panicked: %.200v", r)
	glog.Errorf("%s: %v (feature gate %s)\n%.4096s", operation, *err, features.VolumePluginPanicRecovery, debug.Stack())
}

// NewMounter is that of the plugin, and an error if it panics.
func NewMounter(plugin volume.VolumePlugin, spec *volume.Spec, pod *v1.Pod, opts volume.VolumeOptions) (m volume.Mounter, err error) {
	if utilfeature.DefaultFeatureGate.Enabled(features.VolumePluginPanicRecovery) {
		defer recoverPlugin("reconstruct", &err)
	}
	return plugin.NewMounter(spec, pod, opts)
}

// guardedGenerator is an OperationGenerator none of whose functions panics. Where one
// would have, the function that it returns gives the error, so that the operation backs
// off as one that failed.
type guardedGenerator struct {
	OperationGenerator
	recorder record.EventRecorder
}

// guardPlugins is og with the gate off.
func guardPlugins(og *operationGenerator) OperationGenerator {
	if !utilfeature.DefaultFeatureGate.Enabled(features.VolumePluginPanicRecovery) {
		return og
	}
	return &guardedGenerator{og, og.recorder}
}
