// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"regexp"
	"time"
)

// decision is what the endpoints controller logs at level 5 when it has worked out the
// Endpoints of a Service (endpoints_controller.go, 1.7 to 1.9): equal ones are not written.
var decision = regexp.MustCompile(`(?m)^I(\d{4} \d{2}:\d{2}:\d{2}\.\d{6}).* (endpoints are equal for|Update endpoints for) ([^\s,]+), `)

// skipped reports whether the log of a controller manager says that its last decision on the
// Service key, "namespace/name", since that time was to write nothing.
func skipped(log, key string, since time.Time) bool {
	equal := false
	for _, m := range decision.FindAllStringSubmatch(log, -1) {
		if m[3] != key {
			continue
		}
		at, err := time.ParseInLocation("20060102 15:04:05.000000", since.Format("2006")+m[1], since.Location())
		if err != nil || at.Before(since) {
			continue
		}
		equal = m[2] == "endpoints are equal for"
	}
	return equal
}
