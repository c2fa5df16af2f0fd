// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction reads a kubelet's --eviction-hard.
package eviction

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Threshold is one of --eviction-hard: SIGNAL<VALUE.
type Threshold struct{ Signal, Value string }

// Parse reads --eviction-hard: a list "a<b,c<d", or a map of 1.9 as it prints itself. What is no
// threshold is left out.
func Parse(s string) []Threshold {
	var out []Threshold
	for part := range strings.SplitSeq(s, ",") {
		if signal, value, ok := strings.Cut(strings.TrimSpace(part), "<"); ok {
			out = append(out, Threshold{signal, strings.TrimSpace(value)})
		}
	}
	return out
}

var suffixes = map[string]float64{"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

// Below tells whether there is less than the threshold: of is all that there is, 0 where that is not
// known. known is false where the value cannot be told.
func (t Threshold) Below(have, of float64) (is, known bool, text string) {
	limit := 0.0
	if percent, ok := strings.CutSuffix(t.Value, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		if err != nil || of <= 0 {
			return false, false, ""
		}
		limit = n / 100 * of
		text = fmt.Sprintf("%s is %.1f%%, the threshold is %g%%", t.Signal, math.Floor(1000*have/of)/10, n)
	} else {
		digits := strings.TrimRight(t.Value, "KMGTik")
		n, err := strconv.ParseFloat(digits, 64)
		by, ok := suffixes[t.Value[len(digits):]]
		if err != nil || !ok {
			return false, false, ""
		}
		limit = n * by
		text = fmt.Sprintf("%s is %.0f, the threshold is %.0f", t.Signal, have, limit)
	}
	return have < limit, true, text
}
