// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"flag"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	reflectormonotonicrv "holdfast/tools/labs/reflector-monotonic-rv"
)

var keep = flag.Bool("keep", false, "write "+endpointsFile+" from the last run of the lab "+endpointsLab)

// TestKeepEndpoints writes the file when asked to; a run that is not there is an error.
func TestKeepEndpoints(t *testing.T) {
	if *keep {
		root, err := base.FindRoot(".")
		if err != nil {
			t.Fatal(err)
		}
		if err := KeepEndpoints(root); err != nil {
			t.Fatal(err)
		}
	}
	if err := KeepEndpoints(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--keep") {
		t.Errorf("no run: %v", err)
	}
}

func TestDrawEndpoints(t *testing.T) {
	type series = []reflectormonotonicrv.Point
	of := func(seconds float64, with ...int) (s series) {
		for i, n := range with {
			s = append(s, reflectormonotonicrv.Point{Seconds: seconds * float64(i), With: n})
		}
		return s
	}
	falls, stays := of(5, 30, 2, 30, 30), of(18, 30, 30)
	svg, err := drawEndpoints(falls, stays)
	if err != nil || strings.Count(svg, "<path") != 2 || !strings.Contains(svg, "falls as low as 2,") {
		t.Errorf("%v\n%s", err, svg)
	}
	for _, bad := range [][2]series{{falls, falls}, {stays, stays}, {falls, nil}, {falls, of(18, 29, 29)}} {
		if _, err := drawEndpoints(bad[0], bad[1]); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}
