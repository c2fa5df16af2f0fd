// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package batching lets changes of pods wait, so that the endpoints controller
// writes many of them in one update of an Endpoints object. Upstream has it since
// 1.16 (kubernetes/kubernetes#80509).
package batching

import (
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Period is how long the change of a pod waits for others, 0 or more. It is the
// value of the flag --endpoint-updates-batch-period. The zero value is stock: no
// change waits.
type Period time.Duration

// Add queues the key of a Service one of whose pods was added, changed or deleted.
// The first change starts the period; one that comes while the key waits does not
// prolong it (workqueue.DelayingInterface keeps the earlier time). A key that
// somebody else adds to the queue meanwhile is worked on at once.
func (p Period) Add(queue workqueue.DelayingInterface, key interface{}) {
	if p <= 0 {
		// AddAfter would count a retry in the queue's metrics even for 0.
		queue.Add(key)
		return
	}
	queue.AddAfter(key, time.Duration(p))
}

// Set implements pflag.Value. A flag set that fails ends the program with status 2.
func (p *Period) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%v: give a duration such as 1s or 500ms, or 0 for none", err)
	}
	if d < 0 {
		return fmt.Errorf("%v is negative: give a duration such as 1s, or 0 for none", d)
	}
	*p = Period(d)
	return nil
}

// String implements pflag.Value.
func (p *Period) String() string { return time.Duration(*p).String() }

// Type implements pflag.Value. It is that of pflag's own durations.
func (p *Period) Type() string { return "duration" }
