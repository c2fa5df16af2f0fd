// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package webset

import (
	"fmt"
	"time"
)

// limiterRefill is how long a kubelet's client of 5 requests a second, 10 at once
// (--kube-api-qps, --kube-api-burst), needs to have them all to spare: 2 s without a request.
const limiterRefill = 3 * time.Second

// idleRequests are those that a kubelet with nothing to do may send in limiterRefill: it writes
// its Node with two every 10 s, and renews a watch now and then.
const idleRequests = 4

// requests are the readings of one kubelet's counter of requests to the API, oldest first.
type requests []reading

type reading struct {
	at    time.Time
	total float64
}

// spare adds a reading. It is nil if the client's limiter is full by then, else it says why not.
// A counter that went back is another process's: what was read before does not count.
func (r *requests) spare(at time.Time, total float64) error {
	if n := len(*r); n > 0 && (*r)[n-1].total > total {
		*r = nil
	}
	*r = append(*r, reading{at, total})
	for len(*r) > 1 && at.Sub((*r)[1].at) >= limiterRefill {
		*r = (*r)[1:]
	}
	first := (*r)[0]
	if d := at.Sub(first.at); d < limiterRefill {
		return fmt.Errorf("its requests have been counted for only %v", d)
	}
	if n := total - first.total; n > idleRequests {
		return fmt.Errorf("%.0f requests in the last %v", n, at.Sub(first.at))
	}
	return nil
}
