// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

func TestChoose(t *testing.T) {
	stock, ours, off := labkit.Stock, labkit.Ours, labkit.GateOff
	suite := []run.Chosen{
		{Lab: "alone", Variants: []labkit.Variant{stock, ours, off}},
		{Lab: "more", Variants: []labkit.Variant{stock, ours}},
		{Lab: "most", Variants: []labkit.Variant{ours}}, // it shows three slugs, on ours only
		{Lab: "both", Variants: []labkit.Variant{"naive", ours}},
		{Lab: "check", Variants: []labkit.Variant{ours}}, // it is not in the matrix
	}
	form := func(labs ...string) *slugs.Form {
		f := &slugs.Form{Labs: map[string][]string{}}
		for _, l := range labs {
			f.Labs[l] = nil
		}
		return f
	}
	forms := []*slugs.Form{form("alone", "both"), form("both", "most"), form("both", "more", "most"), form("more"), form("most"), form("none")}
	matrix := func(lab string, v labkit.Variant) bool { return lab != "check" && v != "naive" }
	every := func(lab string, v labkit.Variant) bool { return v != off && lab+string(v) != "morestock" }
	show := func(runs []run.Chosen) string {
		var s []string
		for _, c := range runs {
			s = append(s, c.Lab+fmt.Sprint(c.Variants))
		}
		return strings.Join(s, " ")
	}
	for _, c := range []struct{ what, changed, runs, left string }{
		{"all has changed", "alone more most both",
			"alone[stock ours ours-gate-off] more[stock ours] most[ours] both[naive ours] check[ours]", ""},
		{"nothing has", "",
			"more[ours] most[ours] both[naive ours] check[ours]", "alone[stock ours ours-gate-off] more[stock]"},
		{"one run has", "alone:ours-gate-off",
			"alone[ours-gate-off] more[ours] most[ours] both[naive ours] check[ours]", "alone[stock ours] more[stock]"},
		{"another has", "more:stock",
			"more[stock ours] most[ours] both[naive ours] check[ours]", "alone[stock ours ours-gate-off]"},
	} {
		got, err := Choose(suite, forms, every, matrix, func(lab string, v labkit.Variant) (bool, error) {
			for f := range strings.FieldsSeq(c.changed) {
				if f == lab || f == lab+":"+string(v) {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil || show(got.Runs) != c.runs || show(got.LeftOut) != c.left {
			t.Errorf("%s: runs %s, left out %s, %v\nwant %s, left out %s", c.what, show(got.Runs), show(got.LeftOut), err, c.runs, c.left)
		}
		if s := fmt.Sprint(got.Always); s != "[both more most]" {
			t.Errorf("%s: always %s", c.what, s)
		}
	}
	// Without a slug that needs it, a lab's variant outside the matrix is left out with the others.
	got, err := Choose(suite[3:4], nil, every, matrix, func(string, labkit.Variant) (bool, error) { return true, nil })
	if err != nil || len(got.Runs) > 0 || show(got.LeftOut) != "both[naive ours]" {
		t.Errorf("runs %s, left out %s, %v", show(got.Runs), show(got.LeftOut), err)
	}
	if _, err := Choose(suite, forms, every, matrix, func(string, labkit.Variant) (bool, error) { return false, errors.New("no key") }); err == nil {
		t.Error("an error of the keys is lost")
	}
}

// TestAlways: stock is run of the incidents that were told, and nothing with its gates off.
func TestAlways(t *testing.T) {
	for slug, stock := range map[string]bool{"container-hash-compat": true, "checkpoint-compat": false} {
		l := &labkit.Lab{Name: "a-lab"}
		l.Use(nil, []string{slug})
		for v, want := range map[labkit.Variant]bool{labkit.Stock: stock, labkit.Ours: true, "naive": true, labkit.GateOff: false} {
			if got := always(l, v); got != want {
				t.Errorf("%s, %s: %v", slug, v, got)
			}
		}
	}
	table, err := slugs.Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range reports {
		if table.Find(s) == nil {
			t.Errorf("slugs.json has no %s", s)
		}
	}
}
