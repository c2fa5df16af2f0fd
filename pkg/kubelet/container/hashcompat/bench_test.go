// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"testing"

	"k8s.io/api/core/v1"
)

// benchContainers are three containers of the golden data.
func benchContainers(b *testing.B) map[string]*v1.Container {
	out := map[string]*v1.Container{}
	for _, row := range readGolden(b) {
		switch row.ID {
		case "min-token", "article-node-exporter", "real-web":
			out[row.ID] = row.decode(b, modeProto)
		}
	}
	return out
}

// BenchmarkHash: the stock hash, what an older generation adds to it, and all
// generations at once.
func BenchmarkHash(b *testing.B) {
	for name, c := range benchContainers(b) {
		b.Run("stock/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				stockHash(c)
			}
		})
		b.Run("stock-then-match-1.7/"+name, func(b *testing.B) {
			recorded, ok := Hash(c, Gen17)
			if !ok {
				b.Fatal("1.7 does not know this container")
			}
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				if stockHash(c) != recorded {
					if _, ok := Match(c, recorded); !ok {
						b.Fatal("no match")
					}
				}
			}
		})
		b.Run("all/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				All(c)
			}
		})
	}
}
