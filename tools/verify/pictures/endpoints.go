// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"errors"
	"fmt"

	reflectormonotonicrv "holdfast/tools/labs/reflector-monotonic-rv"
)

// endpoints draws how many Services have ready Endpoints, over time, stock above and Holdfast below.
var endpoints = runsPicture[reflectormonotonicrv.Point]{
	lab: "reflector-monotonic-rv", file: "tools/labs/reflector-monotonic-rv/endpoints.json",
	series: reflectormonotonicrv.Series, draw: drawEndpoints,
}

// lowest is the smallest count of a series.
func lowest(s []reflectormonotonicrv.Point) int {
	n := s[0].With
	for _, p := range s {
		n = min(n, p.With)
	}
	return n
}

func drawEndpoints(stock, ours []reflectormonotonicrv.Point) (string, error) {
	if len(stock) < 2 || len(ours) < 2 || stock[0].With != ours[0].With || stock[0].With < 1 {
		return "", errors.New("two series are needed that begin with the same number of Services")
	}
	all := stock[0].With
	if lowest(stock) == all || lowest(ours) < all {
		return "", fmt.Errorf("of %d Services with Endpoints, %d are left with stock and %d with ours: that is not the incident, and its end", all, lowest(stock), lowest(ours))
	}
	const left, right, high = 60, 930, 110
	least := lowest(stock) / 10 * 10 // the bottom of both scales
	until := min(stock[len(stock)-1].Seconds, ours[len(ours)-1].Seconds)
	x := func(s float64) float64 { return left + min(s, until)/until*(right-left) }
	c := newCanvas(960, 400, fmt.Sprintf("Two lines over %.0f seconds: how many of %d live Services have ready Endpoints. With upstream 1.9.11 the number falls as low as %d, with Holdfast it stays at %d", until, all, lowest(stock), all))
	c.text(14, 26, "start", `font-size="16" font-weight="600"`, fmt.Sprintf("Services that have Endpoints, of %d that live", all))
	for i, l := range []struct {
		name, colour string
		series       []reflectormonotonicrv.Point
	}{{"upstream 1.9.11", stockColour, stock}, {"Holdfast", holdfastColour, ours}} {
		top := 72 + i*(high+58)
		y := func(n int) float64 { return float64(top) + float64(all-n)/float64(all-least)*high }
		c.text(left, top-12, "start", fmt.Sprintf(`fill="%s" font-weight="600"`, l.colour), fmt.Sprintf("%s: at least %d", l.name, lowest(l.series)))
		for _, n := range []int{least, all} {
			c.line(left, int(y(n)), right, int(y(n)), faintColour, 1)
			c.text(left-10, int(y(n))+5, "end", fmt.Sprintf(`font-size="12" fill="%s"`, lineColour), fmt.Sprint(n))
		}
		path := fmt.Sprintf("M%.1f %.1f", x(0), y(l.series[0].With))
		for _, p := range l.series[1:] {
			if p.Seconds > until {
				break
			}
			path += fmt.Sprintf("H%.1fV%.1f", x(p.Seconds), y(p.With))
		}
		c.add(`<path d="%sH%d" fill="none" stroke="%s" stroke-width="3"/>`, path, right, l.colour)
	}
	const base = 372
	c.text(left, base, "start", `font-size="12"`, "0 s: an old Service is deleted")
	c.text(right, base, "end", `font-size="12"`, fmt.Sprintf("%.0f s", until))
	c.text((left+right)/2+60, base, "middle", `font-size="12"`, "the controller manager's watches end every 4 to 6 s")
	return c.end(), nil
}
