// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"cmp"
	"slices"
	"strings"
)

// core says whether a resource is of the core group and may be in the same etcd as the
// others of it. Events often are in another, and a group that is served by an aggregated
// server may have a storage of its own.
func core(resource string) bool {
	return resource != "events" && !strings.Contains(resource, ".")
}

// class names the resources whose resourceVersions count the same changes: "" for those of
// the core group that interleave, else the resource, because --etcd-servers-overrides may
// give each an etcd of its own.
func (l *Log) class(resource string) string {
	if l.shared[resource] {
		return ""
	}
	return resource
}

// crossings is how often the largest version of a resource and that of all others of the
// core group must overtake each other before they are one count. Those of two etcds overtake
// each other once, where one grows faster.
const crossings = 3

// interleave finds the resources of class "".
func (l *Log) interleave() {
	type named struct {
		observation
		resource string
	}
	var all []named
	for resource, os := range l.observations {
		for _, o := range os {
			if core(resource) {
				all = append(all, named{o, resource})
			}
		}
	}
	slices.SortFunc(all, func(a, b named) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.rv, b.rv)) })
	l.shared = map[string]bool{}
	for resource := range l.observations {
		var own, others uint64
		n, leads := -1, false // the first lead is no crossing
		for _, o := range all {
			mine := o.resource == resource
			if mine && o.rv > own {
				own = o.rv
			} else if !mine && o.rv > others {
				others = o.rv
			} else {
				continue
			}
			if is := own > others || own == others && mine; n < 0 || is != leads {
				n, leads = n+1, is
			}
		}
		if core(resource) && n >= crossings {
			l.shared[resource] = true
		}
	}
}
