// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"holdfast/tools/build/fixes"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// shortChecks are the checks that make test runs: what an operator does with a node and its
// kubelet, which no lab of a fix shows.
var shortChecks = []string{"kubelet-units", "node-swap", "upgrade-runbook"}

// TestShortSet: make test shows each fix that has a lab, and each gate of it, with the build of ours
// in each base that has it and is not long; on stock too, in the same lab, the five incidents that
// operators have told in public: who runs make test for the first time sees them. Of a long base it
// runs one lab of a fix, on stock and on ours. It runs nothing else but shortChecks.
func TestShortSet(t *testing.T) {
	r := checkout(t)
	table, all, _ := r.labs(t)
	short := map[string]bool{}
	for _, b := range bases(t, r.root) {
		short[b.Name] = !b.Long
	}
	report(t, shortSetFaults(table, short, run.TestRuns(all)))
}

func shortSetFaults(table *fixes.Table, short map[string]bool, set []run.Chosen) []string {
	bad := notShown(table, short, set)
	for _, name := range shortChecks {
		if !slices.ContainsFunc(set, func(c run.Chosen) bool { return c.Lab.Name == name && slices.Contains(c.Variants, labkit.Ours) }) {
			bad = append(bad, fmt.Sprintf("make test does not run the check %s on ours: add labkit.Ours to its field Test", name))
		}
	}
	for i, c := range set {
		if slices.Contains(shortChecks, c.Lab.Name) {
			continue
		}
		for _, v := range c.Variants {
			less := slices.Clone(set)
			less[i].Variants = slices.DeleteFunc(slices.Clone(c.Variants), func(o labkit.Variant) bool { return o == v })
			if len(notShown(table, short, less)) == len(notShown(table, short, set)) {
				bad = append(bad, fmt.Sprintf("make test shows without lab %s (%s) what it shall show: take the variant out of the lab's field Test", c.Lab.Name, v))
			}
		}
	}
	return bad
}

// notShown lists what a short set does not show and shall show. short are all bases: false is a long one.
func notShown(table *fixes.Table, short map[string]bool, set []run.Chosen) []string {
	bad := notOneLab(table, short, set)
	for _, s := range table.Fixes {
		stock := false
		for _, f := range s.Forms {
			if !short[f.Base] {
				continue
			}
			// README says of a fix without any lab that there is none yet.
			ours := map[string]bool{} // by gate, "" is what has none
			for _, gates := range f.Labs {
				for _, g := range orNone(gates) {
					ours[g] = false
				}
			}
			for _, c := range set {
				gates, shows := f.Labs[c.Lab.Name]
				if !shows || !slices.Contains(c.Variants, labkit.Ours) {
					continue
				}
				stock = stock || slices.Contains(c.Variants, labkit.Stock)
				for _, g := range orNone(gates) {
					ours[g] = true
				}
			}
			for _, g := range slices.Sorted(maps.Keys(ours)) {
				if !ours[g] {
					bad = append(bad, fmt.Sprintf("no lab of make test shows %s (%s, gate %q) on ours: add labkit.Ours to the field Test of one", s.Name, f.Base, g))
				}
			}
		}
		if s.Report && !stock {
			bad = append(bad, fmt.Sprintf("no lab of make test shows the incident of %s on stock and on ours: add both to the field Test of one", s.Name))
		}
	}
	return bad
}

// notOneLab lists the long bases of which a short set runs no lab of a fix on stock and on ours.
func notOneLab(table *fixes.Table, short map[string]bool, set []run.Chosen) []string {
	var bad []string
	for _, base := range slices.Sorted(maps.Keys(short)) {
		if short[base] {
			continue
		}
		fixed := false // the base has fixes with labs
		var most []labkit.Variant
		for _, s := range table.Fixes {
			for _, f := range s.Forms {
				if f.Base != base || len(f.Labs) == 0 {
					continue
				}
				fixed = true
				for _, c := range set {
					if _, shows := f.Labs[c.Lab.Name]; shows && len(c.Variants) > len(most) {
						most = c.Variants
					}
				}
			}
		}
		for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours} {
			if fixed && !slices.Contains(most, v) {
				bad = append(bad, fmt.Sprintf("make test runs no lab of a fix of the long base %s on %s: add both to the field Test of one", base, v))
			}
		}
	}
	return bad
}

// orNone are gates, or "" if there is none.
func orNone(gates []string) []string {
	if len(gates) == 0 {
		return []string{""}
	}
	return gates
}

func TestFindsShortSetFaults(t *testing.T) {
	table := &fixes.Table{Fixes: []*fixes.Fix{
		{Name: "rbd-detach", Kind: fixes.Own, Report: true, Forms: []*fixes.Form{testrepo.Form("v1", map[string]bool{"G": true, "H": true}, map[string][]string{"a": {"G"}, "b": {"G", "H"}})}},
		{Name: "other", Kind: fixes.Security, Forms: []*fixes.Form{testrepo.Form("v1", nil, map[string][]string{"b": nil})}},
		{Name: "none", Kind: fixes.Own, Forms: []*fixes.Form{testrepo.Form("v1", nil, nil)}},
	}}
	both, ours := []labkit.Variant{labkit.Stock, labkit.Ours}, []labkit.Variant{labkit.Ours}
	set := func(more ...run.Chosen) []run.Chosen {
		for _, name := range shortChecks {
			more = append(more, run.Chosen{Lab: &labkit.Lab{Name: name}, Variants: ours})
		}
		return more
	}
	short := map[string]bool{"v1": true}
	a, b := &labkit.Lab{Name: "a"}, &labkit.Lab{Name: "b"}
	found(t, shortSetFaults(table, short, set(run.Chosen{Lab: a, Variants: both}, run.Chosen{Lab: b, Variants: ours})))
	found(t, shortSetFaults(table, short, set(run.Chosen{Lab: b, Variants: ours})), "the incident of rbd-detach on stock")
	found(t, shortSetFaults(table, short, set(run.Chosen{Lab: a, Variants: both})), `shows rbd-detach (v1, gate "H") on ours`, `shows other (v1, gate "") on ours`)
	found(t, shortSetFaults(table, nil, set(run.Chosen{Lab: b, Variants: ours})), "the incident of rbd-detach on stock", "without lab b (ours)")
	withLong := map[string]bool{"v1": true, "v2": false}
	late := &labkit.Lab{Name: "a-v2"}
	table.Fixes[1].Forms = append(table.Fixes[1].Forms, testrepo.Form("v2", nil, map[string][]string{"a-v2": nil, "b-v2": nil}))
	good := []run.Chosen{{Lab: a, Variants: both}, {Lab: b, Variants: ours}}
	found(t, shortSetFaults(table, withLong, set(append(good, run.Chosen{Lab: late, Variants: both})...)))
	found(t, shortSetFaults(table, withLong, set(good...)), "long base v2 on stock", "long base v2 on ours")
	found(t, shortSetFaults(table, withLong, set(append(good, run.Chosen{Lab: late, Variants: ours})...)), "long base v2 on stock")
	found(t, shortSetFaults(table, withLong, set(append(good, run.Chosen{Lab: late, Variants: both}, run.Chosen{Lab: &labkit.Lab{Name: "b-v2"}, Variants: ours})...)), "without lab b-v2 (ours)")
	table.Fixes[1].Forms = table.Fixes[1].Forms[:1]
	found(t, shortSetFaults(table, short, set(run.Chosen{Lab: a, Variants: ours}, run.Chosen{Lab: b, Variants: both})), "without lab a (ours)")
	found(t, shortSetFaults(table, short, set(run.Chosen{Lab: b, Variants: both})[:3]), "does not run the check "+shortChecks[2])
}
