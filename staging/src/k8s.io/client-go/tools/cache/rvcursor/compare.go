// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor

// WellFormed says whether rv is a resourceVersion whose order is defined: a
// positive decimal integer of any length, with no sign and no leading zero. "" and
// "0" are not: they have a meaning of their own in list and watch requests and are
// never the version of an object.
func WellFormed(rv string) bool {
	if len(rv) == 0 || rv[0] == '0' {
		return false
	}
	for i := 0; i < len(rv); i++ {
		if rv[i] < '0' || rv[i] > '9' {
			return false
		}
	}
	return true
}

// Less says whether a is older than b. It is false unless both are well-formed. It
// compares strings, not numbers, because a resourceVersion may be longer than any
// integer type: without leading zeros the longer one is the larger, and among
// those of one length the order of the digits decides.
func Less(a, b string) bool {
	if len(a) > len(b) || len(a) == len(b) && a >= b {
		return false // as nearly always, so before the closer look
	}
	return WellFormed(a) && WellFormed(b)
}
