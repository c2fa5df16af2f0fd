// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import "testing"

// goldenReleases are the columns of the golden data that this release knows.
var goldenReleases = map[string]Generation{
	"1.6.1": Gen16, "1.7.0": Gen17, "1.8.0": Gen18, "1.8.15": Gen18, "1.9.0": Gen19, "1.9.11": Gen19,
}

// What TestGolden compares, and what it does not as the release lacks a field.
const goldenCompared, goldenWithheld = 1194, 42

// TestGoldenNewer states what the data says about kubelets newer than 1.9: up
// to 1.13 they record the 1.9 hash unless the container has a securityContext.
func TestGoldenNewer(t *testing.T) {
	for _, row := range readGolden(t) {
		c := row.decode(t, modeProto)
		native, _ := Hash(c, Native)
		for _, release := range []string{"1.10.0", "1.11.10", "1.12.4", "1.12.10", "1.13.0"} {
			if row.unknownTo("1.9.11") {
				continue
			}
			if same := row.Hash[release][modeProto] == native; same != (c.SecurityContext == nil) {
				t.Errorf("%s: %s: same hash %v, securityContext %v", row.ID, release, same, c.SecurityContext != nil)
			}
		}
	}
}
