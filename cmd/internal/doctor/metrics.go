// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"regexp"
	"strconv"
	"strings"

	"holdfast/cmd/internal/finding"
)

// series is one line of a page of metrics.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	seriesForm = regexp.MustCompile(`^([a-z][a-z0-9_]{0,120})(?:\{(.*)\})? ([^ ]{1,40})$`)
	labelForm  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]{0,60})="((?:[^"\\]|\\.)*)"`)
)

// parseMetrics takes the series of Holdfast and of the build from a page of metrics, in Prometheus'
// text format.
func parseMetrics(page []byte) []series {
	var out []series
	for line := range strings.Lines(string(page)) {
		if len(line) > maxSeries || !strings.HasPrefix(line, "holdfast_") && !strings.HasPrefix(line, buildInfo) {
			continue
		}
		m := seriesForm.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			continue
		}
		s := series{name: m[1], labels: map[string]string{}, value: v}
		for _, l := range labelForm.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[2]
		}
		out = append(out, s)
	}
	return out
}

const (
	buildInfo = "kubernetes_build_info"
	maxSeries = 4096 // bytes of one line
)

// build is the release that a page of metrics tells of its component.
func build(page []series) (release, bool) {
	for _, s := range page {
		if s.name == buildInfo {
			return parseRelease(s.labels["gitVersion"])
		}
	}
	return release{text: "unknown"}, false
}

// evaluate gives the findings of the alerts of a component.
func evaluate(object, component string, page []series) []finding.Finding {
	var out []finding.Finding
	for _, c := range finding.Codes() {
		a := finding.AlertOf(c.Code)
		if a == nil || a.Component != component {
			continue
		}
		for _, s := range page {
			if s.name == a.Metric && s.value > 0 && has(s.labels, a.Labels) {
				says := a.Says
				if !a.Gauge {
					says += " (at some time since the process started)"
				}
				out = append(out, finding.Of(c.Code, object, says, a.Remedy))
				break
			}
		}
	}
	return out
}

// has tells whether all wanted labels are there.
func has(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}
