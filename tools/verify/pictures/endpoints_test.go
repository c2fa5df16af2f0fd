// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"flag"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	reflectormonotonicrv "holdfast/tools/labs/reflector-monotonic-rv"
	unreadybeforereplace "holdfast/tools/labs/unready-before-replace"
)

var keep = flag.String("keep", "", "take what the picture of this lab shows from its last run, which --keep has left")

// TestKeep writes the file that it is asked for; a run that is not there is an error.
func TestKeep(t *testing.T) {
	all := map[string]func(root string) error{endpoints.lab: endpoints.keep, inPlace.lab: inPlace.keep}
	for lab, write := range all {
		if err := write(t.TempDir()); err == nil || !strings.Contains(err.Error(), lab+" --keep") {
			t.Errorf("no run of %s: %v", lab, err)
		}
	}
	if *keep == "" {
		return
	}
	root, err := base.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	if all[*keep] == nil {
		t.Fatalf("-keep %s: no picture shows a run of that lab", *keep)
	}
	if err := all[*keep](root); err != nil {
		t.Fatal(err)
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

func TestDrawInPlace(t *testing.T) {
	type spans = []unreadybeforereplace.Span
	of := func(pod int, from, until float64, down bool) unreadybeforereplace.Span {
		return unreadybeforereplace.Span{Seconds: from, Until: until, Pod: pod, Down: down}
	}
	bad := spans{of(0, 0, 2, false), of(0, 2, 6, true), of(1, 0, 1, false), of(1, 8, 9, false)}
	good := spans{of(0, 0, 1, false), of(0, 5, 9, false), of(1, 0, 9.5, false)}
	svg, err := drawInPlace(bad, good)
	if err != nil || strings.Count(svg, "<rect") != 1+len(bad)+len(good) || !strings.Contains(svg, "With upstream 1.9.11 1 addresses") {
		t.Errorf("%v\n%s", err, svg)
	}
	for _, no := range [][2]spans{{bad, bad}, {good, good}, {bad, nil}, {nil, good}, {bad, good[:2]}} {
		if _, err := drawInPlace(no[0], no[1]); err == nil {
			t.Errorf("%v: no error", no)
		}
	}
}
