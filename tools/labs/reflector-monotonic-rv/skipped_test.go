// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"testing"
	"time"
)

func TestSkipped(t *testing.T) {
	const log = `I1122 11:59:58.000000   12345 endpoints_controller.go:490] endpoints are equal for default/late, skipping update
I1122 12:00:01.000000   12345 endpoints_controller.go:502] Update endpoints for default/made, ready: 2 not ready: 0
I1122 12:00:02.000000   12345 endpoints_controller.go:490] endpoints are equal for default/passed, skipping update
I1122 12:00:02.500000   12345 endpoints_controller.go:490] endpoints are equal for default/both, skipping update
I1122 12:00:03.000000   12345 endpoints_controller.go:502] Update endpoints for default/both, ready: 2 not ready: 0
`
	since := time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)
	for key, want := range map[string]bool{
		"default/late": false, "default/made": false, "default/passed": true, "default/both": false,
		"default/pass": false, "default/other": false,
	} {
		if got := skipped(log, key, since); got != want {
			t.Errorf("%s: skipped %v, want %v", key, got, want)
		}
	}
	if !skipped(log, "default/late", since.Add(-time.Minute)) {
		t.Error("default/late is skipped for one who asks from before")
	}
}
