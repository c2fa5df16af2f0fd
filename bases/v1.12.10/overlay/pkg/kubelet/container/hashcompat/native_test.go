// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"testing"

	"k8s.io/api/core/v1"
)

// goldenReleases are the columns of the golden data that this release knows.
var goldenReleases = map[string]Generation{
	"1.6.1": Gen16, "1.7.0": Gen17, "1.8.0": Gen18, "1.8.15": Gen18, "1.9.0": Gen19, "1.9.11": Gen19,
	"1.10.0": Gen110, "1.11.10": Gen110, "1.12.4": Gen112, "1.12.10": Gen112, "1.13.0": Gen112,
}

// What TestGolden compares, and what it does not as the release lacks a field.
const goldenCompared, goldenWithheld = 2196, 70

// TestProcMount: a container runs with procMount "Default" as without procMount, which a kubelet
// before 1.12 does not know. With any other procMount it does not.
func TestProcMount(t *testing.T) {
	seen := &v1.Container{SecurityContext: &v1.SecurityContext{}}
	for g := Gen16; g <= Gen110; g++ {
		recorded, ok := Hash(seen, g)
		if !ok {
			t.Fatalf("%v has no hash", g)
		}
		for mount, kept := range map[v1.ProcMountType]bool{v1.DefaultProcMount: true, v1.UnmaskedProcMount: false, "": false} {
			c := &v1.Container{SecurityContext: &v1.SecurityContext{ProcMount: &mount}}
			if _, ok := Match(c, recorded); ok != kept {
				t.Errorf("%v, procMount %q: kept = %v, want %v", g, mount, ok, kept)
			}
			if h, ok := Hash(c, g); ok != kept || kept && h != recorded {
				t.Errorf("%v, procMount %q: hash %d, %v, want %d", g, mount, h, ok, recorded)
			}
			if native, ok := Hash(c, Native); !ok || native != stockHash(c) || native == recorded {
				t.Errorf("procMount %q: native hash %d, %v, want %d", mount, native, ok, stockHash(c))
			}
		}
	}
}

// TestRunAsGroup: a kubelet before 1.10 started the container with another group.
func TestRunAsGroup(t *testing.T) {
	seen, group := &v1.Container{SecurityContext: &v1.SecurityContext{}}, int64(0)
	c := &v1.Container{SecurityContext: &v1.SecurityContext{RunAsGroup: &group}}
	for g := Gen16; g < Native; g++ {
		recorded, _ := Hash(seen, g)
		if _, ok := Match(c, recorded); ok {
			t.Errorf("%v, which saw no runAsGroup: kept", g)
		}
		own, ok := Hash(c, g)
		if ok != (g == Gen110) {
			t.Errorf("%v has a hash: %v", g, ok)
		}
		if m, kept := Match(c, own); ok && (!kept || m != g) {
			t.Errorf("%v: Match = %v, %v", g, m, kept)
		}
	}
	if g := Oldest(c); g != Gen110 {
		t.Errorf("Oldest = %v", g)
	}
}

// TestNoSecurityContext: from 1.9 to 1.13 a container without a securityContext has one hash.
func TestNoSecurityContext(t *testing.T) {
	for _, row := range readGolden(t) {
		c := row.decode(t, modeProto)
		if c.SecurityContext != nil {
			continue
		}
		for g := Gen19; g < Native; g++ {
			if h, ok := Hash(c, g); !ok || h != stockHash(c) {
				t.Errorf("%s: %v: %d, %v, want %d", row.ID, g, h, ok, stockHash(c))
			}
		}
	}
}
