// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/cmd/internal/mutate"
)

func TestParse(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	l := table.Parse(strings.Split(`/usr/bin/hyperkube kubelet --kubeconfig /etc/k --allow_privileged -v 2 --v=3 --register-node --feature-gates=A=true,B=false --feature_gates C=true --none x --none2 --address=1.2.3.4 word -- --after`, " "))
	want := []string{"kubeconfig", "allow-privileged", "v", "register-node", "feature-gates", "none", "none2", "address"}
	if !slices.Equal(l.Names, want) {
		t.Errorf("names %q, want %q", l.Names, want)
	}
	if v, _ := l.Last("v"); v != "3" {
		t.Errorf("v is %q", v)
	}
	if v, _ := l.Last("kubeconfig"); v != "/etc/k" {
		t.Errorf("kubeconfig is %q", v)
	}
	if g := l.Gates(); fmt.Sprint(g) != "map[A:true B:false C:true]" {
		t.Errorf("gates %v", g)
	}
	if !l.Bool("allow-privileged", false) || !l.Bool("none-at-all", true) || l.Bool("none-at-all", false) {
		t.Error("switches")
	}
	if got := table.Parse(Split("kubelet\x00--a=b c\x00--v\x002\x00")); got.values["a"][0] != "b c" || got.values["v"][0] != "2" {
		t.Errorf("by NUL: %v", got)
	}
}

// TestRow: a patch release is judged by the newest row of its minor that is not newer.
func TestRow(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		minor, patch int
		holdfast     bool
		row          string
		its          int
	}{
		{7, 0, false, "v1.7.0", 0}, {7, 16, false, "v1.7.0", 0},
		{8, 0, false, "v1.8.0", 0}, {8, 14, false, "v1.8.0", 0}, {8, 15, false, "v1.8.15", 15}, {8, 99, false, "v1.8.15", 15},
		{9, 0, false, "v1.9.11", 11}, {9, 11, true, Ours, 0}, {6, 9, false, "", 0}, {10, 0, false, "", 0},
	} {
		if row, its := table.Row(c.minor, c.patch, c.holdfast); row != c.row || its != c.its {
			t.Errorf("1.%d.%d is judged by %q, patch %d; want %q", c.minor, c.patch, row, its, c.row)
		}
	}
	if table.HasGate("v1.8.0", "VolumeSubpath") || !table.HasGate("v1.8.15", "VolumeSubpath") {
		t.Error("the gate VolumeSubpath came between 1.8.0 and 1.8.15")
	}
}

func TestRefusedAndStandalone(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, release, refused string }{
		{"--api-servers=http://a --feature-gates=AffinityInAnnotations=true", "v1.9.11", "--api-servers, feature gate AffinityInAnnotations"},
		{"--api_servers http://a", "v1.7.0", ""},
		{"--fail-swap-on=false", "v1.7.0", "--fail-swap-on"},
		{"--feature-gates=AdmissionAcrossRestart=false", "v1.9.11", "feature gate AdmissionAcrossRestart"},
		{"--feature-gates=AdmissionAcrossRestart=false --kubeconfig=x -v=2", Ours, ""},
	} {
		if got := strings.Join(table.Refused(c.release, table.Parse(append([]string{"kubelet"}, strings.Fields(c.line)...))), ", "); got != c.refused {
			t.Errorf("%s of %q refuses %q, want %q", c.release, c.line, got, c.refused)
		}
	}
	for line, want := range map[string][2]bool{ // 1.7, 1.8 and later
		"":                                      {true, true},
		"--kubeconfig=x":                        {true, false},
		"--kubeconfig=":                         {true, true},
		"--require-kubeconfig":                  {false, false},
		"--require-kubeconfig=false":            {true, true},
		"--api-servers=http://a":                {false, true},
		"--kubeconfig x --require_kubeconfig=1": {false, false},
	} {
		l := table.Parse(append([]string{"kubelet"}, strings.Fields(line)...))
		if got := [2]bool{l.Standalone(7), l.Standalone(9)}; got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
	if d := table.Default("v1.7.0", "eviction-hard"); strings.Contains(d, "imagefs") || d == "" {
		t.Errorf("1.7's eviction-hard is %q", d)
	}
	if d := table.Default(Ours, "eviction-hard"); !strings.Contains(d, "imagefs.available<15%") {
		t.Errorf("Holdfast's eviction-hard is %q", d)
	}
	if _, err := parse("flag x"); err == nil {
		t.Error("a broken table was taken")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"kubelet\x00--a=b\x00--v\x002", "\x00\x00--\x00-", "x\x00--=\x00-v\x00\"", "k\x00--feature-gates\x00a=,=b,\x00"} {
		f.Add(s)
	}
	table, err := Load()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) { parseAny(t, table, s) })
}

// A command line may be anything.
func TestBadLines(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	mutate.Texts(10_000, "/usr/bin/kubelet\x00--kubeconfig=/k\x00--require_kubeconfig\x00--feature-gates\x00A=true,B=false\x00-v=2\x00--x \"y\"", func(s string) { parseAny(t, table, s) })
}

func parseAny(t *testing.T, table *Table, s string) {
	l := table.Parse(Split(s))
	for i, n := range l.Names {
		if n == "" || slices.Index(l.Names, n) != i || len(l.Values(n)) == 0 {
			t.Errorf("%q: name %q", s, n)
		}
	}
	if len(table.Refused(Ours, l)) > len(l.Names)+len(l.Gates()) {
		t.Errorf("%q: more refused than there is", s)
	}
	_ = l.Standalone(7)
}
