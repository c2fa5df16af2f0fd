// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// costPages have the ratios that the long runs of the checks of cost have measured.
var costPages = []struct{ title, page string }{
	{"a node of 110 pods and 200 Deployments, at rest", "tools/labs/checks/cost-at-rest/README.md"},
	{"a rollout of 3,000 pods on 100 nodes", "tools/labs/checks/cost-at-scale/README.md"},
}

// ratio is a row of such a page: what Holdfast took, with upstream as 1, and the interval that has
// the true median with 97 % confidence.
type ratio struct {
	component, quantity string
	median, low, high   float64
}

var (
	costTable = regexp.MustCompile(`(?m)^\| (kubelet|controller manager|quantity) \| (?:Holdfast/stock|ratio) \|`)
	costRow   = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([0-9.]+) \(([0-9.]+) to ([0-9.]+)\) \|`)
)

// ratios are the rows of a page, in its order.
func ratios(page string) ([]ratio, error) {
	var out []ratio
	tables := costTable.FindAllStringSubmatchIndex(page, -1)
	for i, t := range tables {
		end := len(page)
		if i+1 < len(tables) {
			end = tables[i+1][0]
		}
		component := page[t[2]:t[3]]
		if component == "quantity" {
			component = "controller manager"
		}
		for _, m := range costRow.FindAllStringSubmatch(page[t[1]:end], -1) {
			r := ratio{component: component, quantity: m[1]}
			for at, to := range []*float64{&r.median, &r.low, &r.high} {
				v, err := strconv.ParseFloat(m[at+2], 64)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", component, m[1], err)
				}
				*to = v
			}
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("it has no table of ratios")
	}
	return out, nil
}

// Cost draws what Holdfast takes with upstream as 1, from the pages of the checks of cost: a dot for
// the median and a line for the interval.
func Cost(root string) (string, error) {
	const (
		left, right = 420, 900
		top, step   = 92, 26
		least, most = 0.5, 1.4
	)
	x := func(v float64) int { return left + int(math.Round((v-least)/(most-least)*(right-left))) }
	type group struct {
		title string
		rows  []ratio
	}
	var groups []group
	height := top
	for _, p := range costPages {
		page, err := os.ReadFile(filepath.Join(root, p.page))
		if err != nil {
			return "", err
		}
		rows, err := ratios(string(page))
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.page, err)
		}
		groups = append(groups, group{p.title, rows})
		height += step*(len(rows)+1) + 14
	}
	c := newCanvas(960, height, "What Holdfast takes of memory, CPU, requests and time, with upstream 1.9.11 as 1: medians and their intervals lie around 1")
	c.text(14, 26, "start", `font-size="16" font-weight="600"`, "What Holdfast costs, with upstream 1.9.11 as 1")
	c.text(14, 48, "start", fmt.Sprintf(`font-size="12" fill="%s"`, lineColour), "dot: median of six pairs of runs; line: interval of 97 % confidence; left of 1 is less than upstream")
	for _, v := range []float64{0.5, 0.75, 1, 1.25} {
		colour, width := faintColour, 1
		if v == 1 {
			colour, width = lineColour, 2
		}
		c.line(x(v), top-14, x(v), height-10, colour, width)
		c.text(x(v), top-20, "middle", fmt.Sprintf(`font-size="12" fill="%s"`, lineColour), fmt.Sprintf("%g", v))
	}
	y := top
	for _, g := range groups {
		c.text(14, y+5, "start", `font-weight="600"`, g.title)
		y += step
		for _, r := range g.rows {
			if r.low > r.median || r.median > r.high || r.low < least || r.high > most {
				return "", fmt.Errorf("%s, %s: %g (%g to %g) is no row of the picture, whose scale is %g to %g", r.component, r.quantity, r.median, r.low, r.high, least, most)
			}
			c.text(left-16, y+5, "end", "", r.component+": "+r.quantity)
			c.line(x(r.low), y, x(r.high), y, holdfastColour, 3)
			c.add(`<circle cx="%d" cy="%d" r="6" fill="%s"/>`, x(r.median), y, holdfastColour)
			c.text(right+6, y+5, "start", `font-size="12"`, fmt.Sprintf("%.3f", r.median))
			y += step
		}
		y += 14
	}
	return c.end(), nil
}
