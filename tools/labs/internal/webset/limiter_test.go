// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package webset

import (
	"testing"
	"time"
)

func TestSpare(t *testing.T) {
	for name, tc := range map[string]struct {
		totals []float64 // one a second
		want   bool      // after the last
	}{
		"nothing read yet":             {[]float64{7}, false},
		"read for too short":           {[]float64{7, 7, 7}, false},
		"idle":                         {[]float64{7, 7, 7, 7}, true},
		"the Node and a watch":         {[]float64{7, 9, 9, 10}, true},
		"5 a second":                   {[]float64{0, 5, 10, 15, 20}, false},
		"2 a second":                   {[]float64{0, 2, 4, 6}, false},
		"busy, and idle for 2 s":       {[]float64{0, 5, 10, 15, 15, 15}, false},
		"busy, and idle for 3 s":       {[]float64{0, 5, 10, 15, 15, 15, 15}, true},
		"another process, short":       {[]float64{100, 100, 100, 100, 2, 2}, false},
		"another process, long":        {[]float64{100, 100, 100, 100, 2, 2, 2, 2}, true},
		"another process that is busy": {[]float64{100, 100, 100, 100, 2, 7, 12, 17}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r requests
			var err error
			begin := time.Now()
			for i, total := range tc.totals {
				err = r.spare(begin.Add(time.Duration(i)*time.Second), total)
			}
			if (err == nil) != tc.want {
				t.Errorf("%v: %v, want spare %t", tc.totals, err, tc.want)
			}
		})
	}
}
