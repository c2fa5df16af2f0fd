// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutate makes bad input for tests of what reads the answers and files of others.
package mutate

import (
	"math/rand/v2"
	"slices"
)

// Texts calls do with n texts that are a valid one with bytes, words or numbers changed. They are
// the same in each run.
func Texts(n int, valid string, do func(s string)) {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"null", "{}", "[]", `""`, "-1", "1e999", "\x00", "\\u0000", `"a":`, "}", "]", "99999999999999999999", "%", "<", "Ki", "\xff", "=", "--", "_", "\n"}
	for range n {
		b := []byte(valid)
		for range 1 + r.IntN(4) {
			i := r.IntN(len(b) + 1)
			switch j := min(i+r.IntN(20), len(b)); r.IntN(4) {
			case 0:
				b = slices.Delete(b, i, j)
			case 1:
				b = b[:i]
			default:
				b = slices.Concat(b[:i], []byte(words[r.IntN(len(words))]), b[j:])
			}
		}
		do(string(b))
	}
}
