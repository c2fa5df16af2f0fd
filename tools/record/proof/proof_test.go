// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"reflect"
	"strings"
	"testing"

	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/record/outcomes"
)

// table has fixes and their labs.
func table(t *testing.T) (*fixes.Table, labkit.Labs) {
	t.Helper()
	of := func(name string, kind fixes.Kind, f *fixes.Form) *fixes.Fix {
		return &fixes.Fix{Name: name, Kind: kind, Forms: []*fixes.Form{f}}
	}
	tab := &fixes.Table{Fixes: []*fixes.Fix{
		of("alpha", fixes.Own, testrepo.Form("v1.9.11", map[string]bool{"A": true}, map[string][]string{"alpha": {"A"}, "both": {"A"}})),
		of("beta", fixes.Security, testrepo.Form("v1.9.11", nil, map[string][]string{"both": nil})),
		of("bare", fixes.Own, testrepo.Form("v1.9.11", nil, nil)),
		of("old", fixes.Toolchain, testrepo.Form("v1.2.0", nil, map[string][]string{"old": nil})),
	}}
	folder := map[string]string{"long": "checks/long"}
	var labs []labkit.Lab
	for _, name := range []string{"alpha", "both", "old", "long"} {
		labs = append(labs, labkit.Lab{Name: name, Summary: name, Folder: folder[name], OnRequest: name == "long", Steps: func(*labkit.Env) []labkit.Step { return nil },
			Oracle: labkit.Oracle{Text: []string{"x"}, Judge: func(*history.History) labkit.Outcome { return labkit.Outcome{} }}})
	}
	all, err := labkit.NewLabs(labs, tab)
	if err != nil {
		t.Fatal(err)
	}
	return tab, all
}

func name(l *labkit.Lab) string {
	if l == nil {
		return ""
	}
	return l.Name
}

func TestRows(t *testing.T) {
	var got []string
	for _, r := range Rows(table(t)) {
		line := r.Fix + " " + r.Base + " " + name(r.Lab) + ":"
		for _, c := range r.Cells() {
			line += " [" + string(c.Variant) + "]"
		}
		got = append(got, line)
	}
	want := []string{
		"alpha v1.9.11 alpha: [stock] [ours] [ours -alpha] [ours-gate-off]",
		"alpha v1.9.11 both: [stock] [ours] [ours-gate-off]", // lab alpha shows it alone
		"beta v1.9.11 both: [stock] [ours] [ours -beta]",     // it has no gate
		"bare v1.9.11 :",
		"old v1.2.0 old: [stock] [ours]", // stock has it too
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rows:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCells: make test-all runs each lab in each variant, and without each fix; none on request.
func TestCells(t *testing.T) {
	var got []string
	tab, all := table(t)
	for _, c := range Cells(Rows(tab, all), all) {
		got = append(got, c.Lab.Name+" "+string(c.Variant))
	}
	want := []string{"alpha stock", "alpha ours", "alpha ours-gate-off", "both stock", "both ours", "both ours-gate-off", "old stock", "old ours", "alpha ours -alpha", "both ours -beta"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
}

func TestMarkdown(t *testing.T) {
	record := &outcomes.Record{}
	for v, verdict := range map[labkit.Variant]string{labkit.Stock: "reproduced", labkit.Ours: "absent"} {
		record.Put(outcome.Outcome{Lab: "alpha", Variant: v, Verdict: outcome.Verdict(verdict), Commit: strings.Repeat("c", 40), Date: "2026-11-20"})
	}
	record.Put(outcome.Outcome{Lab: "both", Variant: labkit.Stock, Verdict: "reproduced", Commit: strings.Repeat("d", 40), Date: "2026-11-19"})
	page := Markdown(Rows(table(t)), record)
	for _, want := range []string{"3 of 10 runs are recorded.", "* a: 2026-11-19, dddddddddddd\n* b: 2026-11-20, cccccccccccc\n",
		"| alpha | alpha | reproduced b | absent b | not yet | not yet |\n", "| beta | both | reproduced a | not yet | not yet |  |\n", "| bare |  |  |  |  |  |\n", "## Base v1.2.0\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if got := letter(27); got != "b1" {
		t.Error(got)
	}
}
