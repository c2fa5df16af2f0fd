// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

// QueuedDir has the kubelet of Queued, below the root.
const QueuedDir = "_output/dropin/queued"

// Queued takes from our kubelet the limit of its own for the statuses that say that a container
// is to be replaced: they wait behind its other requests. It is for the lab
// endpoints-rules-queued, which shows why there is that limit.
var Queued = []Mutant{{Says: "sends unready statuses behind its other requests", File: "pkg/kubelet/status/holdfast_unready_before_replace_writer.go",
	Old: `limited.Throttle = flowcontrol.NewTokenBucketRateLimiter(unreadyQPS, unreadyBurst)`,
	New: `limited.Throttle = own.Throttle` + "\n\t\t" + `_ = flowcontrol.NewTokenBucketRateLimiter`}}
