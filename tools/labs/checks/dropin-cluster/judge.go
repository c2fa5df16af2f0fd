// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropincluster

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/build/dropin"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// turns are whose controller manager and kubelet run, in their order: ours with its gates off is
// before stock, as it takes away the packet filter's rule of localnet-firewall.
func turns(p labkit.Profile, base string) []string {
	one := []string{stock, dropin.Ours, dropin.GatesOff}
	if p == labkit.Long && base == dropin.Base {
		one = slices.Insert(one, 2, mutant)
	}
	return slices.Repeat(one, rounds)
}

// turn is what was seen of one build in one turn.
type turn struct {
	Number int
	Build  string
	Facts  dropin.Run
}

// allowed is the table of differences, as it was when the lab ran.
type allowed struct{ Table dropin.Table }

func oracle(base string) labkit.Oracle {
	text := []string{
		"each fact that every turn of Holdfast shows and no turn of stock, or the reverse, belongs to a fix, and every listed difference of these kinds was found",
		"counts of requests differ by no more than stock's own spread, and two more",
		"the same for Holdfast with its gates off",
	}
	if base == dropin.Base {
		text = append(text, "long: each change of the changed kubelet (tools/build/dropin/mutant.go) is detected, except the change of the command line")
	}
	return labkit.Oracle{Text: text, Judge: func(h *history.History) labkit.Outcome { return judge(h, base) }}
}

func judge(h *history.History, base string) labkit.Outcome {
	runs := map[string][]dropin.Run{}
	for _, t := range history.Of[turn](h) {
		if err := t.Facts.Check(kinds, dropin.Components); err != nil {
			return labkit.InconclusiveBecause("turn %d, %s: %v", t.Number, t.Build, err)
		}
		runs[t.Build] = append(runs[t.Build], t.Facts)
	}
	want := map[string]int{}
	for _, build := range turns(labkit.Profile(h.Profile), base) {
		want[build]++
	}
	for build, n := range want {
		if len(runs[build]) != n {
			return labkit.InconclusiveBecause("%d turns of %s, want %d", len(runs[build]), build, n)
		}
	}
	table := history.One[allowed](h).Table
	res, bad := labkit.Outcome{}, []string{}
	known := 0
	for _, build := range dropin.Builds {
		v := table.Judge(build, kinds, dropin.Compare(runs[stock], runs[build]))
		res.Facts = append(res.Facts, strings.Split(strings.TrimSpace(v.Report(build)), "\n")...)
		for _, l := range v.Allowed {
			known += len(l)
		}
		if !v.OK() {
			bad = append(bad, fmt.Sprintf("%s: %d differences that belong to no fix, %d listed differences that were not found", build, len(v.Unknown), len(v.Gone)))
		}
	}
	if got := runs[mutant]; len(got) > 0 {
		for _, m := range dropin.Uncaught(dropin.Mutants, kinds, dropin.Compare(runs[stock], got)) {
			bad = append(bad, "not detected: a kubelet that "+m)
		}
		res.Facts = append(res.Facts, fmt.Sprintf("a kubelet with %d changes also took turns", len(dropin.Mutants)))
	}
	facts := res.Facts
	if len(bad) > 0 {
		res = labkit.FailedBecause("%s", strings.Join(bad, "; "))
	} else {
		res = labkit.PassedBecause("%d turns; %d differences, each belongs to a fix", len(history.Of[turn](h)), known)
	}
	res.Facts = facts
	return res
}
