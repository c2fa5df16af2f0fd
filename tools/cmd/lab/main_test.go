// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for args, want := range map[string]int{
		"":                                 0, // the list
		"--help":                           0,
		"outcomes --format json":           0,
		"outcomes --format xml":            2,
		"outcomes --profile medium":        2,
		"outcomes nosuchlab":               2,
		"all --at-once 0":                  2,
		"all nosuchlab":                    2,
		"nosuchlab":                        2,
		"cluster-smoke --variant x|y":      2,
		"cluster-smoke --bin nonsense":     2,
		"cluster-smoke --no-such-flag":     2,
		"build now":                        2,
		"rejudge":                          2,
		"rejudge /nonexistent":             2,
		"suite now":                        2,
		"up --root /":                      2,
		"cluster-smoke --variant naive":    2,
		"cluster-smoke --variant ours|x|-": 2,
	} {
		f := strings.Fields(args)
		for i := range f {
			f[i] = strings.ReplaceAll(f[i], "|", " ")
		}
		if got := Main(f); got != want {
			t.Errorf("lab %s: exit status %d, want %d", args, got, want)
		}
	}
}
