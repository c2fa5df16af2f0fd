// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// killPage has the sum of the last kill tests of all labs.
const killPage = "docs/design/labs.md"

var killRow = regexp.MustCompile(`(?m)^\| runs with a kill \| verdict right \| verdict inconclusive \| verdict wrong \|[^\n]*\n[^\n]*\n\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|`)

// Kills draws a dot for each run of a lab in which a component was killed.
func Kills(root string) (string, error) {
	page, err := os.ReadFile(filepath.Join(root, killPage))
	if err != nil {
		return "", err
	}
	m := killRow.FindStringSubmatch(string(page))
	if m == nil {
		return "", fmt.Errorf("%s has no table of the kill tests", killPage)
	}
	var n [4]int // all, right, inconclusive, wrong
	for i := range n {
		if n[i], err = strconv.Atoi(m[i+1]); err != nil {
			return "", err
		}
	}
	if n[1]+n[2]+n[3] != n[0] {
		return "", fmt.Errorf("%s: of %d kills %d were right, %d inconclusive and %d wrong", killPage, n[0], n[1], n[2], n[3])
	}
	const columns, left, top, step = 40, 30, 66, 22
	height := top + step*((n[0]+columns-1)/columns) + 44
	c := newCanvas(960, height, fmt.Sprintf("A dot for each of %d runs in which a component was killed: %d verdicts are right, %d inconclusive, %d wrong", n[0], n[1], n[2], n[3]))
	c.text(14, 26, "start", `font-size="16" font-weight="600"`, fmt.Sprintf("kill -9 at a random moment: %d runs, %d wrong verdicts", n[0], n[3]))
	for i := range n[0] {
		x, y := left+step*(i%columns), top+step*(i/columns)
		switch {
		case i < n[1]:
			c.add(`<circle cx="%d" cy="%d" r="7" fill="%s"/>`, x, y, holdfastColour)
		case i < n[1]+n[2]:
			c.add(`<circle cx="%d" cy="%d" r="6" fill="#fff" stroke="%s" stroke-width="2"/>`, x, y, lineColour)
		default:
			c.add(`<path d="M%d %dl12 12m0 -12l-12 12" stroke="%s" stroke-width="3"/>`, x-6, y-6, stockColour)
		}
	}
	c.text(left-8, height-16, "start", "", fmt.Sprintf("Full: right (%d). Open: the lab said that it could not tell (%d). Cross: wrong (%d).", n[1], n[2], n[3]))
	return c.end(), nil
}
