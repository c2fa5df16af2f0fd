// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"fmt"

	unreadybeforereplace "holdfast/tools/labs/unready-before-replace"
)

// inPlace draws when each pod's address was in Endpoints while all images were changed, stock above and
// Holdfast below.
var inPlace = runsPicture[unreadybeforereplace.Span]{
	lab: "unready-before-replace", file: "tools/labs/unready-before-replace/in-place.json",
	series: unreadybeforereplace.Series, draw: drawInPlace,
}

// extent is of how many pods spans are, how many of these had a span after their kill, and when the last ends.
func extent(spans []unreadybeforereplace.Span) (pods, down int, until float64) {
	all, killed := map[int]bool{}, map[int]bool{}
	for _, s := range spans {
		all[s.Pod], until = true, max(until, s.Until)
		if s.Down {
			killed[s.Pod] = true
		}
	}
	return len(all), len(killed), until
}

func drawInPlace(stock, ours []unreadybeforereplace.Span) (string, error) {
	pods, down, end := extent(stock)
	same, none, last := extent(ours)
	if pods < 1 || pods != same || down < 1 || none > 0 {
		return "", fmt.Errorf("%d and %d pods, of which stock has %d in Endpoints after their kill, and Holdfast %d: that is not the incident, and its end", pods, same, down, none)
	}
	until := max(end, last)
	const left, right, row = 60, 930, 7
	high := pods * row
	x := func(s float64) int { return left + int(s/until*(right-left)+0.5) }
	c := newCanvas(960, 2*(high+58)+66, fmt.Sprintf("A bar for each of %d pods over %.0f seconds while all images change: the time in which its address is in Endpoints. With upstream 1.9.11 %d addresses are still there after their container was killed, with Holdfast none is", pods, until, down))
	c.text(14, 26, "start", `font-size="16" font-weight="600"`, fmt.Sprintf("%d pods, a bar each: when the pod's address is in Endpoints", pods))
	top := 72
	for _, l := range []struct {
		name, colour string
		spans        []unreadybeforereplace.Span
		down         int
		end          float64
	}{{"upstream 1.9.11", stockColour, stock, down, end}, {"Holdfast", holdfastColour, ours, none, last}} {
		c.text(left, top-12, "start", fmt.Sprintf(`fill="%s" font-weight="600"`, l.colour), fmt.Sprintf("%s, for %.0f s: %d in Endpoints while their container is killed", l.name, l.end, l.down))
		for _, s := range l.spans {
			colour, thin := lineColour, 2
			if s.Down {
				colour, thin = stockColour, 0
			}
			c.add(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, x(s.Seconds), top+s.Pod*row+thin, max(1, x(s.Until)-x(s.Seconds)), row-1-2*thin, colour)
		}
		top += high + 58
	}
	base := top - 58 + 28
	c.text(left, base, "start", `font-size="12"`, "0 s: all images are changed")
	c.text((left+right)/2, base, "middle", `font-size="12"`, "thin: a container is ready; thick: the old one is killed, the new one is not ready")
	c.text(right, base, "end", `font-size="12"`, fmt.Sprintf("%.0f s", until))
	return c.end(), nil
}
