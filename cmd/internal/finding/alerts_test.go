// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The rules are what Prometheus reads: by promtool where there is one, and by their fields.
func TestAlerts(t *testing.T) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(Alerts()), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) != len(alerts) {
		t.Fatalf("%d groups, want one with %d rules", len(file.Groups), len(alerts))
	}
	name, seen := regexp.MustCompile(`^Holdfast[A-Za-z]+$`), map[string]bool{}
	for _, r := range file.Groups[0].Rules {
		a := AlertOf(r.Labels["code"])
		if a == nil || a.Name != r.Alert || !name.MatchString(r.Alert) || seen[r.Alert] || !strings.Contains(r.Expr, a.Metric) ||
			!strings.Contains(r.Annotations["summary"], a.Says) || r.Annotations["page"] != Lookup(r.Labels["code"]).Page() {
			t.Errorf("%+v", r)
		}
		seen[r.Alert] = true
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", filepath.Join("../../..", AlertsPage)).CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
}

func TestExpr(t *testing.T) {
	for want, a := range map[string]Alert{
		"m == 1":              {Metric: "m", Gauge: true},
		"increase(m[1h]) > 0": {Metric: "m"},
		`increase(m{a="b",c="d"}[1h]) > 0 or (m{a="b",c="d"} > 0 unless m{a="b",c="d"} offset 1h)`: {Metric: "m", Labels: map[string]string{"c": "d", "a": "b"}},
	} {
		if got := a.expr(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
