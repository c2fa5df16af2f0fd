// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import "testing"

func TestBelow(t *testing.T) {
	for value, limit := range map[string]float64{"10%": 100, "100Mi": 100 << 20, "1.5k": 1500, "7": 7} {
		list := Parse("a.b<1, memory.available<" + value)
		if len(list) != 2 || list[1].Signal != "memory.available" {
			t.Fatalf("%s: %v", value, list)
		}
		if is, known, text := list[1].Below(limit-1, 1000); !is || !known || text == "" {
			t.Errorf("%s: one less: %t %t %s", value, is, known, text)
		}
		if is, known, _ := list[1].Below(limit, 1000); is || !known {
			t.Errorf("%s: as much: %t %t", value, is, known)
		}
	}
	for _, bad := range []string{"x", "", "%", "1Xi"} {
		if _, known, _ := (Threshold{"a", bad}).Below(1, 1000); known {
			t.Errorf("%q is known", bad)
		}
	}
	if _, known, _ := (Threshold{"a", "10%"}).Below(1, 0); known {
		t.Error("a part of what is not known is known")
	}
	if list := Parse("map[], ,a=b"); len(list) != 0 {
		t.Errorf("%v", list)
	}
}
