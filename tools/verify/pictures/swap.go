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

// swapPage says how long a swap took in the lab, and how long it may take.
const swapPage = "docs/user/upgrade-1.7-to-1.9.md"

// swapTimes are in seconds.
type swapTimes struct {
	healthy  float64 // from the stop of the old kubelet until the new one is healthy, as seen
	allowed  float64 // the same at most
	age      float64 // of the last heartbeat when the old kubelet stops, at most
	patience float64 // of the node controller, from the last heartbeat on
}

var swapTexts = []*regexp.Regexp{
	regexp.MustCompile(`runs and is healthy, ([0-9.]+) s after\s+the\s+stop began`),
	regexp.MustCompile(`between\s+stop\s+and\s+start\s+below\s+([0-9.]+)\s+s`),
	regexp.MustCompile(`heartbeat\s+can\s+already\s+be\s+([0-9.]+)\s+s\s+old`),
	regexp.MustCompile(`heartbeat\s+is\s+([0-9.]+)\s+s\s+old`),
}

// readSwapTimes takes the numbers from the text of the page: of each the first.
func readSwapTimes(page string) (swapTimes, error) {
	var t swapTimes
	for i, to := range []*float64{&t.healthy, &t.allowed, &t.age, &t.patience} {
		m := swapTexts[i].FindStringSubmatch(page)
		if m == nil {
			return t, fmt.Errorf("it has no text like %s", swapTexts[i])
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return t, err
		}
		*to = v
	}
	if t.healthy >= t.allowed || t.age+t.allowed >= t.patience {
		return t, fmt.Errorf("the times %+v do not follow one another", t)
	}
	return t, nil
}

// Swap draws how much time a swap of a kubelet has, on a line from the last heartbeat of the old one.
func Swap(root string) (string, error) {
	page, err := os.ReadFile(filepath.Join(root, swapPage))
	if err != nil {
		return "", err
	}
	t, err := readSwapTimes(string(page))
	if err != nil {
		return "", fmt.Errorf("%s: %w", swapPage, err)
	}
	const left, right, y = 60, 900, 150
	x := func(s float64) int { return left + int(s/t.patience*(right-left)) }
	c := newCanvas(960, 260, fmt.Sprintf("A line of time: a last heartbeat, the stop of the old kubelet up to %g s later, the new one healthy %g s after that in the lab, and at %g s the node controller takes the pods out of their Services", t.age, t.healthy, t.patience))
	c.text(14, 26, "start", `font-size="16" font-weight="600"`, "How much time a swap of a kubelet has")
	bar := func(from, to float64, colour string) {
		c.add(`<rect x="%d" y="%d" width="%d" height="20" fill="%s"/>`, x(from), y-10, x(to)-x(from), colour)
	}
	bar(0, t.age, faintColour)
	bar(t.age, t.age+t.healthy, holdfastColour)
	bar(t.age+t.healthy, t.age+t.allowed, "#cfe6d8")
	bar(t.age+t.allowed, t.patience, "#f2dada")
	for _, m := range []struct {
		at     float64
		anchor string
		above  bool
		lines  []string
	}{
		{0, "start", false, []string{"0 s", "last heartbeat of", "the old kubelet"}},
		{t.age, "middle", true, []string{"the old kubelet stops,", fmt.Sprintf("at %g s at the latest", t.age)}},
		{t.age + t.healthy, "start", false, []string{fmt.Sprintf("Holdfast is healthy: %g s", t.healthy), "after the stop, in the lab"}},
		{t.age + t.allowed, "middle", true, []string{"Holdfast must run by now:", fmt.Sprintf("%g s after the stop", t.allowed)}},
		{t.patience, "end", false, []string{fmt.Sprintf("%g s", t.patience), "the node controller takes the", "node's pods out of their Services"}},
	} {
		first, to := y+42, y+26
		if m.above {
			first, to = y-32-18*(len(m.lines)-1), y-26
		}
		c.line(x(m.at), y, x(m.at), to, textColour, 2)
		for i, line := range m.lines {
			c.text(x(m.at), first+18*i, m.anchor, `font-size="13"`, line)
		}
	}
	return c.end(), nil
}
