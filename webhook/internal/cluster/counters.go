// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "sync/atomic"

// Counters are what the metrics are made of.
type Counters struct {
	RulesFailed atomic.Int64 // rules that went off
	PutRight    atomic.Int64 // Endpoints that were written
	Moved       atomic.Int64 // addresses that they placed elsewhere
	Conflicts   atomic.Int64 // writes that somebody else was before
	Overruled   atomic.Int64 // writes of which the server stored something else
	WriteErrors atomic.Int64 // writes that failed otherwise
	Touched     atomic.Int64 // Services that were touched
	Judged      atomic.Int64 // items of work
}

func newCounters() *Counters { return &Counters{} }
