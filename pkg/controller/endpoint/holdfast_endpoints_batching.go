// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"k8s.io/kubernetes/pkg/controller/endpoint/batching"
)

// podUpdates is how the controller takes up the changes of pods.
type podUpdates struct {
	period batching.Period
}

// BatchPodUpdates lets changes of pods wait for one another from now on. It is called
// before Run, and returns e.
func (e *EndpointController) BatchPodUpdates(period batching.Period) *EndpointController {
	e.podUpdates.period = period
	return e
}

// enqueueForPod queues the key of a Service because of one of its pods. What changes
// the Service itself goes to the queue directly and never waits.
func (e *EndpointController) enqueueForPod(key string) {
	e.podUpdates.period.Add(e.queue, key)
}
