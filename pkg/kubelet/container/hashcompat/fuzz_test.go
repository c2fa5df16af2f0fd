// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"encoding/json"
	"math/rand"
	"testing"

	"k8s.io/api/core/v1"
)

// FuzzDump: any JSON that decodes to a container is dumped as go-spew does it,
// before and after a protobuf round trip.
func FuzzDump(f *testing.F) {
	for _, row := range readGolden(f) {
		f.Add([]byte(row.Spec))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &v1.Container{}
		if json.Unmarshal(data, c) != nil {
			t.Skip()
		}
		checkDump(t, c)
		checkDump(t, roundTrip(t, c))
	})
}

// FuzzDecision: a recorded hash is accepted exactly if a generation that knows
// every set field has it.
func FuzzDecision(f *testing.F) {
	for seed := int64(0); seed < 8; seed++ {
		f.Add(seed, uint64(seed*0x1234567))
	}
	f.Fuzz(func(t *testing.T, seed int64, recorded uint64) {
		c := randomContainer(rand.New(rand.NewSource(seed)))
		checkDump(t, c)
		for _, h := range []uint64{recorded, Explain(c, 0).Tried[recorded%uint64(generations)].Hash} {
			want := false
			for _, g := range Generations()[1:] {
				x, ok := Hash(c, g)
				want = want || ok && x == h
			}
			if _, got := Match(c, h); got != want {
				t.Fatalf("Match(%d) = %v, want %v", h, got, want)
			}
		}
	})
}
