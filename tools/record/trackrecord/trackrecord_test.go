// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package trackrecord

import (
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/labkit"
	"holdfast/tools/record/outcomes"
)

// set is Test of a lab of make test, onlyOurs are Variants of one that does not run stock.
var set, onlyOurs = []base.Variant{base.Ours}, []base.Variant{base.Ours}

var labs = labkit.Labs{
	{Name: "a-one", Folder: "a", Test: set},
	{Name: "a-two", Folder: "a", Test: set},
	{Name: "a-wide", Folder: "a"},
	{Name: "naive", Folder: "a", Variants: onlyOurs, Test: set},
	{Name: "far", Test: set},
	{Name: "c", Folder: "both"},
	{Name: "both", Test: set},
	{Name: "d", Test: set},
	{Name: "d-old", Folder: "d"},
	{Name: "e-v3", Test: set},
	{Name: "d-other", Folder: "d"},
}

func fix(name, incident string, labs map[string][]string) *fixes.Fix {
	gates := map[string]bool{}
	for _, l := range labs {
		for _, g := range l {
			gates[g] = true
		}
	}
	f := testrepo.Form("v1", gates, labs)
	f.Page = "patches/" + name + "/README.md"
	return &fixes.Fix{Name: name, Kind: fixes.Own, Incident: incident, Forms: []*fixes.Form{f}}
}

func TestRows(t *testing.T) {
	gate := []string{"G"}
	other := testrepo.Form("v3", map[string]bool{"G": true}, map[string][]string{"far": nil, "e-v3": gate})
	other.Page, other.Incident = "patches/e/v3/README.md", "it breaks otherwise"
	table := &fixes.Table{Fixes: []*fixes.Fix{
		fix("a", "two labs of a folder", map[string][]string{"a-one": gate, "a-two": nil, "a-wide": gate, "naive": gate, "far": gate}),
		fix("c", "its own lab, not in make test, before a wider one", map[string][]string{"c": nil, "both": nil}),
		fix("d", "beside a longer one", map[string][]string{"d": gate, "d-old": gate, "a-one": gate}),
		fix("w", "only in the lab of another", map[string][]string{"d-old": nil}),
		{Name: "e", Kind: fixes.Own, Incident: "it breaks", Forms: []*fixes.Form{other}},
		fix("m", "in two labs that the folder's name does not run", map[string][]string{"d-old": nil, "d-other": nil}),
		fix("silent", "", map[string][]string{"d": nil}),
		{Name: "tools", Kind: fixes.Toolchain, Incident: "no page", Forms: []*fixes.Form{{Base: "v1"}}},
		fix("none", "nothing shows it", nil),
		{Name: "b", Kind: fixes.Planned, Incident: "later"},
	}}
	// On its second base d has no lab, and "none" has none anywhere.
	for _, i := range []int{2, 8} {
		f := testrepo.Form("v9", nil, nil)
		f.Page = table.Fixes[i].Forms[0].Page
		table.Fixes[i].Forms = append(table.Fixes[i].Forms, f)
	}
	record := &outcomes.Record{}
	put := func(lab string, v base.Variant, verdict string) {
		record.Put(outcome.Outcome{Lab: lab, Variant: v, Verdict: outcome.Verdict(verdict), Date: "2026-11-20"})
	}
	for lab, answers := range map[string][]string{ // stock, ours, gate off
		"a-one": {"reproduced", "absent", "reproduced"},
		"a-two": {"absent", "absent"},
		"both":  {"reproduced", "absent", "reproduced"},
		"c":     {"reproduced", "inconclusive"},
		"d":     {"reproduced", "inconclusive", "absent"},
		"far":   {"far", "far", "far"},
	} {
		for i, a := range answers {
			put(lab, []base.Variant{base.Stock, base.Ours, labkit.GateOff}[i], a)
		}
	}
	// A wider lab shows a alone; naive does not run stock, and no lab shows b.
	put("a-wide", base.Ours.Without("a"), "reproduced")
	put("naive", base.Ours.Without("a"), "absent")
	put("both", base.Ours.Without("c"), "absent")
	put("c", base.Ours.Without("c"), "reproduced")
	got := Rows(table, record, labs)
	want := "| two labs of a folder | [a](../../patches/a/README.md) | v1 | absent, reproduced | absent | reproduced | reproduced | `make lab LAB=a` |\n" +
		"| its own lab, not in make test, before a wider one | [c](../../patches/c/README.md) | v1 | reproduced | inconclusive | absent, reproduced | no gate | `make lab LAB=c` |\n" +
		"| beside a longer one | [d](../../patches/d/README.md) | v1 | reproduced | inconclusive | not yet | absent | `make lab LAB=d` |\n" +
		"| only in the lab of another | [w](../../patches/w/README.md) | v1 | not yet | not yet | not yet | no gate | `make lab LAB=d-old` |\n" +
		"| it breaks otherwise | [e-v3](../../patches/e/v3/README.md) | v3 | not yet | not yet | not yet | not yet | `make lab LAB=e-v3` |\n" +
		"| in two labs that the folder's name does not run | [m](../../patches/m/README.md) | v1 | not yet | not yet | not yet | no gate | `make lab LAB=\"d-old d-other\"` |\n" +
		"| nothing shows it | [none](../../patches/none/README.md) | v1 | no lab yet | no lab yet | no lab yet | no gate |  |\n" +
		"| nothing shows it | [none](../../patches/none/README.md) | v9 | no lab yet | no lab yet | no lab yet | no gate |  |\n" +
		"| later | `b` | | not yet | not yet | | | |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	page, err := Update("# x\n\n"+Head+"| old |\n\nafter\n", table, record, labs)
	if err != nil || page != "# x\n\n"+Head+want+"\nThe oldest of these runs was on 2026-11-20.\n\nafter\n" {
		t.Errorf("%v, page\n%s", err, page)
	}
	if again, err := Update(page, table, record, labs); err != nil || again != page {
		t.Errorf("%v, a second time\n%s", err, again)
	}
	// Where one lab of an incident did not see it with stock, it is not shown.
	if page, err := Shown("is: 9 of 9 incidents.\n", table, record, labs); err != nil || page != "is: 0 of 9 incidents.\n" {
		t.Errorf("%v, page %q", err, page)
	}
	put("a-one", base.Stock, "reproduced")
	put("a-two", base.Stock, "reproduced")
	if page, err := Shown("is: 9 of 9 incidents.\n", table, record, labs); err != nil || page != "is: 1 of 9 incidents.\n" {
		t.Errorf("%v, page %q", err, page)
	}
	if _, err := Shown("none\n", table, record, labs); err == nil || !strings.Contains(err.Error(), "N of N") {
		t.Errorf("a page without the sentence: %v", err)
	}
	if _, err := Update("# x\n", table, record, labs); err == nil || !strings.Contains(err.Error(), "no table") {
		t.Errorf("a page without the table: %v", err)
	}
}
