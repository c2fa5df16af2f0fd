// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// AlertsPage is the file of Prometheus rules that is written from the table, from the root of the
// repository.
const AlertsPage = "docs/user/alerts.yaml"

// series is the metric with its labels, as PromQL has them.
func (a *Alert) series() string {
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(a.Labels)) {
		labels = append(labels, k+"="+strconv.Quote(a.Labels[k]))
	}
	if len(labels) == 0 {
		return a.Metric
	}
	return a.Metric + "{" + strings.Join(labels, ",") + "}"
}

// expr is true while the metric asks for a look. A counter does for an hour after it rose. A series
// with labels is not there before its first event, which increase() misses.
func (a *Alert) expr() string {
	s := a.series()
	switch {
	case a.Gauge:
		return s + " == 1"
	case len(a.Labels) == 0:
		return fmt.Sprintf("increase(%s[1h]) > 0", s)
	}
	return fmt.Sprintf("increase(%s[1h]) > 0 or (%s > 0 unless %s offset 1h)", s, s, s)
}

// Alerts is the file of Prometheus rules.
func Alerts() string {
	var b strings.Builder
	b.WriteString(`# Written from cmd/internal/finding: go test ./internal/finding -update in cmd/
# Rules for the metrics of Holdfast's kubelet and kube-controller-manager. The label code
# is the code under which kubectl holdfast doctor prints the same alert, and codes.md explains it.
groups:
- name: holdfast
  rules:
`)
	for _, c := range Codes() {
		a := AlertOf(c.Code)
		if a == nil {
			continue
		}
		fmt.Fprintf(&b, "  - alert: %s\n    expr: %s\n    labels:\n      severity: warning\n      code: %s\n      component: %s\n", a.Name, quoted(a.expr()), c.Code, a.Component)
		fmt.Fprintf(&b, "    annotations:\n      summary: %s\n      description: %s\n      page: %s\n", quoted("{{ $labels.instance }}: "+a.Says), quoted("What to do: "+a.Remedy+"."), quoted(c.Page()))
	}
	return b.String()
}

// quoted is a YAML scalar in single quotes.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
