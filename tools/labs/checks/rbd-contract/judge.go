// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdcontract

import (
	"fmt"
	"regexp"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

var (
	deviceRE = regexp.MustCompile(`/dev/rbd\d+`)
	sideRE   = regexp.MustCompile(`\b(img|excl|death)-(shim|kernel)\b`)
	// logRE is a line of Ceph's libraries: time, thread, level, or that there is no configuration.
	logRE = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\S+ [0-9a-f]+ +-?\d+ |did not load config file, using default settings\.)`)
)

// same is a text without what differs between two runs of one program.
func same(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if logRE.MatchString(line) {
			continue
		}
		line = deviceRE.ReplaceAllString(line, "/dev/rbdN")
		lines = append(lines, sideRE.ReplaceAllString(line, "$1"))
	}
	return strings.Join(lines, "\n")
}

func judge(h *history.History) labkit.Outcome {
	seen := map[string]map[string]answer{shim: {}, kernel: {}}
	for _, a := range history.Of[answer](h) {
		seen[a.Side][a.What] = a
	}
	var differ, open, facts []string
	for _, c := range cases {
		s, ok := seen[shim][c.What]
		k, ok2 := seen[kernel][c.What]
		if !ok || !ok2 {
			open = append(open, c.What+": it did not run on both sides")
			continue
		}
		facts = append(facts, fmt.Sprintf("%s: kernel: status %d, %d watchers, %.1f s: %q", c.What, k.Code, k.Watchers, k.Seconds, same(k.Output)))
		if s.Code != k.Code || s.Watchers != k.Watchers || same(s.Output) != same(k.Output) {
			differ = append(differ, fmt.Sprintf("%s: kernel: status %d, %d watchers, %q; shim: status %d, %d watchers, %q",
				c.What, k.Code, k.Watchers, same(k.Output), s.Code, s.Watchers, same(s.Output)))
		}
		if k.Code > 90 {
			open = append(open, fmt.Sprintf("%s: what the case needs failed: %q", c.What, k.Output))
		}
	}
	res := labkit.Outcome{}
	ends := map[string]died{}
	for _, d := range history.Of[died](h) {
		ends[d.Side] = d
	}
	for _, side := range []string{kernel, shim} {
		d, ok := ends[side]
		switch {
		case !ok:
			open = append(open, side+": no observation after its death was recorded")
		case d.Seconds == 0:
			differ = append(differ, fmt.Sprintf("%s: the watcher of the dead client stays for %v", side, deathBound))
		case !d.Locked:
			differ = append(differ, side+": the lock of the dead client disappeared with its watcher")
		default:
			res.Measure("watcher gone after the death of "+side, d.Seconds, "s")
			facts = append(facts, fmt.Sprintf("%s: the watcher was gone %.1f s after the power was cut, the lock stayed", side, d.Seconds))
		}
	}
	switch {
	case len(differ) > 0:
		res.Verdict, res.Why = labkit.Failed, strings.Join(append(differ, open...), "; ")
	case len(open) > 0:
		res.Verdict, res.Why = labkit.Inconclusive, strings.Join(open, "; ")
	default:
		res.Verdict, res.Why = labkit.Passed, fmt.Sprintf("%d cases: no difference; after a power cut both watchers disappear and both locks stay", len(cases))
	}
	res.Facts = facts
	return res
}
