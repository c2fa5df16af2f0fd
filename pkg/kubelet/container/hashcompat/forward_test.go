// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"slices"
	"testing"

	"k8s.io/api/core/v1"
)

// TestForward counts what a stock 1.10.0 kubelet keeps: it has 1.9's hash for
// containers without a securityContext, and nobody else's.
func TestForward(t *testing.T) {
	count := map[string]int{}
	for _, row := range readGolden(t) {
		if slices.Contains(row.Unknown, "1.9.11") || slices.Contains(row.Unknown, "1.10.0") {
			continue
		}
		c := row.decode(t, modeProto)
		next := row.Hash["1.10.0"][modeProto]
		count["all"]++
		if next == row.Hash["1.9.11"][modeProto] {
			count["kept of 1.9's"]++
			if c.SecurityContext != nil && *c.SecurityContext != (v1.SecurityContext{}) {
				t.Errorf("%s has a securityContext and is kept", row.ID)
			}
		}
		for _, g := range []Generation{Gen17, Gen18} {
			if h, ok := Hash(c, g); ok && g == Oldest(c) {
				count["recorded as older"]++
				if h == next {
					count["kept of older ones"]++
				}
			}
		}
	}
	t.Logf("1.10.0 keeps %d of %d hashes of 1.9, and %d of %d that 1.7 or 1.8 would have recorded",
		count["kept of 1.9's"], count["all"], count["kept of older ones"], count["recorded as older"])
	if count["all"] != 91 || count["kept of 1.9's"] != 74 || count["recorded as older"] < 80 || count["kept of older ones"] != 0 {
		t.Errorf("%v", count)
	}
}
