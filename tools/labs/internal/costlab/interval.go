// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costlab

import (
	"math"
	"slices"
)

// wanted is the confidence that an interval has if the sample is large enough.
const wanted = 0.95

// Interval is that of the median of what sample was drawn from, whatever its
// distribution: from the k-th smallest value to the k-th largest, k as large as the
// confidence wanted allows, and 1 if no k does. level is the confidence: that of no more
// than k-1 heads, and no fewer than n-k+1, in n throws of a coin.
func Interval(sample []float64) (low, mid, high, level float64) {
	s := slices.Sorted(slices.Values(sample))
	n := len(s)
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN(), 0
	}
	k := 1
	level = confidence(n, k)
	for 2*(k+1) <= n && confidence(n, k+1) >= wanted {
		k++
		level = confidence(n, k)
	}
	return s[k-1], (s[(n-1)/2] + s[n/2]) / 2, s[n-k], level
}

// confidence is 1 - 2·P(at most k-1 of n), each with probability ½.
func confidence(n, k int) float64 {
	below, choose := 0.0, 1.0
	for i := range k {
		below += choose
		choose *= float64(n-i) / float64(i+1)
	}
	return max(0, 1-2*below*math.Pow(0.5, float64(n)))
}
