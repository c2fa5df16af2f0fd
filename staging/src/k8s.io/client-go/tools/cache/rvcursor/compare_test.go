// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor

import (
	"math/big"
	"strings"
	"testing"
)

const longRV = "1234567890123456789012345" // 25 digits, more than any integer type holds

func TestWellFormed(t *testing.T) {
	for rv, want := range map[string]bool{
		"1":                     true,
		"10":                    true,
		"18446744073709551616":  true, // 1<<64
		longRV:                  true,
		strings.Repeat("9", 99): true,
		"":                      false,
		"0":                     false,
		"00":                    false,
		"01":                    false,
		"-1":                    false,
		"+1":                    false,
		"1.5":                   false,
		"1e3":                   false,
		" 1":                    false,
		"1 ":                    false,
		"0x1f":                  false,
		"abc":                   false,
		"12a":                   false,
		"١٢":                    false, // digits, but not ASCII ones
	} {
		if got := WellFormed(rv); got != want {
			t.Errorf("WellFormed(%q) = %v, expected %v", rv, got, want)
		}
	}
}

func TestLess(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"9", "10", true},
		{"10", "9", false},
		{"10", "10", false},
		{"10", "11", true},
		{"19", "21", true},
		{longRV, longRV[:24] + "6", true},
		{longRV[:24] + "6", longRV, false},
		{"9", longRV, true},
		{longRV, "9", false},
		{"18446744073709551615", "18446744073709551616", true},
		// no order
		{"5", "abc", false},
		{"abc", "5", false},
		{"", "5", false},
		{"0", "5", false},
		{"05", "6", false},
		{"5", "06", false},
	} {
		if got := Less(tc.a, tc.b); got != tc.want {
			t.Errorf("Less(%q, %q) = %v, expected %v", tc.a, tc.b, got, tc.want)
		}
	}
}

// TestLessIsNumeric compares with arithmetic on numbers of any size.
func TestLessIsNumeric(t *testing.T) {
	rvs := []string{}
	for n := big.NewInt(1); len(rvs) < 300; n = new(big.Int).Add(new(big.Int).Mul(n, big.NewInt(3)), big.NewInt(int64(len(rvs)%2))) {
		rvs = append(rvs, n.String())
	}
	for _, a := range rvs {
		for _, b := range rvs {
			x, _ := new(big.Int).SetString(a, 10)
			y, _ := new(big.Int).SetString(b, 10)
			if got, want := Less(a, b), x.Cmp(y) < 0; got != want {
				t.Fatalf("Less(%q, %q) = %v, expected %v", a, b, got, want)
			}
		}
	}
}
