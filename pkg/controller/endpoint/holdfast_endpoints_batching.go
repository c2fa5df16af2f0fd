// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"time"

	"github.com/golang/glog"
	"k8s.io/kubernetes/pkg/controller/endpoint/batching"
)

// podUpdates is how the controller takes up the changes of pods.
type podUpdates struct {
	period batching.Period
}

// longPeriod is the longest that is not warned of: a typing error such as 10m for 10s shows
// nowhere else.
const longPeriod = 30 * time.Second

// BatchPodUpdates lets changes of pods wait for one another from now on. It is called
// before Run, and returns e.
func (e *EndpointController) BatchPodUpdates(period batching.Period) *EndpointController {
	if time.Duration(period) > longPeriod {
		glog.Warningf("--endpoint-updates-batch-period=%v: pods that are deleted or not ready stay in Endpoints for that long", time.Duration(period))
	}
	e.podUpdates.period = period
	return e
}

// enqueueForPod queues the key of a Service because of one of its pods. What changes
// the Service itself goes to the queue directly and never waits.
func (e *EndpointController) enqueueForPod(key string) {
	e.podUpdates.period.Add(e.queue, key)
}
