// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"time"

	"holdfast/cmd/internal/finding"
)

// endpoints is what is read of an Endpoints object.
type endpoints struct {
	Metadata struct{ Name, Namespace string }
	Subsets  []struct {
		Addresses []struct {
			IP        string
			TargetRef *struct{ Kind, UID string }
		}
	}
}

// services finds the Services that have no ready address for a time while one node's kubelet is
// swapped: those whose ready addresses all are pods of that node that are unready for a while.
func services(forecasts []*forecast, all []endpoints) []finding.Finding {
	type unready struct {
		node int
		long time.Duration
	}
	pods := map[string]unready{}
	for i, f := range forecasts {
		for uid, long := range f.unready {
			pods[uid] = unready{i, long}
		}
	}
	var out []finding.Finding
	for _, e := range all {
		node, longest, bounded, zero := -1, time.Duration(0), true, true
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				if a.TargetRef == nil || !zero {
					zero = false
					continue
				}
				u, ok := pods[a.TargetRef.UID]
				if !ok || node >= 0 && u.node != node {
					zero = false
					continue
				}
				node, longest, bounded = u.node, max(longest, u.long), bounded && u.long > 0
			}
		}
		if !zero || node < 0 {
			continue
		}
		long := "until its new containers are ready"
		if bounded {
			long = fmt.Sprintf("for at most %s, if the probes succeed", longest)
		}
		object := fmt.Sprintf("%s: Service %s/%s", forecasts[node].node, e.Metadata.Namespace, e.Metadata.Name)
		out = append(out, finding.Of("HF401", object, "all its ready addresses are on this node, so it has no ready address "+long, "give it a ready pod on another node first"))
	}
	return out
}
