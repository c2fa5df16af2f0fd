// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollisionv120

import (
	"hash/adler32"
	"slices"
	"testing"
)

func TestTags(t *testing.T) {
	tags, err := readTags("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(tags) != 100 || !slices.IsSorted(tags) || len(slices.Compact(slices.Clone(tags))) != 100 {
		t.Errorf("tags.txt has %d tags; it wants 100 different ones in order", len(tags))
	}
	if n := len(Collisions(tags)); n != 11 {
		t.Errorf("%d tags collide, the lab's plan says 11", n)
	}
}

func TestCollisions(t *testing.T) {
	tags, err := readTags("../../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	var want []string
	for _, tag := range tags {
		sum := adler32.Checksum([]byte("some text " + tag + " and some more of it"))
		if seen[sum] {
			want = append(want, tag)
		}
		seen[sum] = true
	}
	if got := Collisions(tags); !slices.Equal(got, want) {
		t.Errorf("got %v, adler32 says %v", got, want)
	}
	if got := Collisions([]string{"201703151133", "201703211640"}); len(got) != 1 {
		t.Errorf("the report's tags: got %v", got)
	}
}
