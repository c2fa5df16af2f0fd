// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/sha256"
	_ "embed" // the table
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/build/strictjson"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

//go:embed specs.json
var clusterJSON []byte

//go:embed node-specs.json
var nodeJSON []byte

// suite is one of upstream's, with what this repository says of it.
type suite struct {
	binary string // of the base
	file   string // its specTable
	table  *specTable
	serial bool // some of its specs run alone
}

var (
	clusterSuite = &suite{"e2e.test", "specs.json", mustTable("specs.json", clusterJSON), true}
	nodeSuite    = &suite{"e2e_node.test", "node-specs.json", mustTable("node-specs.json", nodeJSON), false}
)

// passes are the names of the passes in which each spec runs once.
func (u *suite) passes(p labkit.Profile) []string {
	if u.serial && p == labkit.Long {
		return []string{passParallel, passSerial}
	}
	return []string{passParallel}
}

// focus is the regular expression of the specs of a profile.
func (u *suite) focus(p labkit.Profile) string { return labkit.Pick(p, u.table.focus(), allSpecs) }

// specTable is what is run, and what is not.
type specTable struct {
	// Conformance says which specs the suite has in all.
	Conformance struct {
		Specs int `json:"specs"`
		// SHA256 is over the sorted names, a line each.
		SHA256 string `json:"sha256"`
	} `json:"conformance"`
	// Short are the specs of the short profile.
	Short []struct {
		Focus string   `json:"focus"` // regular expression
		Specs int      `json:"specs"` // that it matches
		Shows []string `json:"shows"` // fixes of ours that they pass through
	} `json:"short"`
	// LeftOut are specs that skip themselves.
	LeftOut []struct {
		Spec   string `json:"spec"`
		Reason string `json:"reason"`
	} `json:"leftOut"`
}

func mustTable(file string, b []byte) *specTable {
	t := &specTable{}
	if err := strictjson.Decode(b, t); err != nil {
		panic("conformance: " + file + ": " + err.Error())
	}
	return t
}

// focus is the regular expression of the short profile.
func (t *specTable) focus() string {
	var all []string
	for _, s := range t.Short {
		all = append(all, s.Focus)
	}
	return "(" + strings.Join(all, "|") + ").*" + allSpecs
}

func (t *specTable) reason(name string) string {
	for _, l := range t.LeftOut {
		if l.Spec == name {
			return l.Reason
		}
	}
	return ""
}

// want are the number of specs of a profile and, if all are run, their sum.
func (t *specTable) want(p labkit.Profile) (specs int, sum string) {
	if p == labkit.Long {
		return t.Conformance.Specs, t.Conformance.SHA256
	}
	for _, s := range t.Short {
		specs += s.Specs
	}
	return specs, ""
}

func sumOf(names []string) string {
	h := sha256.New()
	for _, n := range names {
		fmt.Fprintln(h, n)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// setUp: the suite reports what it does before and after its specs only if that fails.
func (x spec) setUp() bool { return x.Name == "BeforeSuite" || x.Name == "AfterSuite" }

// tally is what became of the specs of one name.
type tally struct{ planned, passed, failed, again, failedAgain, skipped int }

func (u *suite) judge(h *history.History) labkit.Outcome {
	res, _ := u.verdict(h)
	return res
}

// verdict also says whether everything was there to give it.
func (u *suite) verdict(h *history.History) (labkit.Outcome, bool) {
	profile := labkit.Profile(h.Profile)
	plan := history.One[planned](h)
	history.One[alive](h)
	runs := map[string]ran{}
	for _, r := range history.Of[ran](h) {
		if _, twice := runs[r.Pass]; twice {
			return labkit.InconclusiveBecause("the pass %s is recorded twice", r.Pass), false
		}
		runs[r.Pass] = r
	}
	tallies := map[string]*tally{}
	at := func(name string) *tally {
		if tallies[name] == nil {
			tallies[name] = &tally{}
		}
		return tallies[name]
	}
	for _, n := range plan.Specs {
		at(n).planned++
	}
	res := labkit.Outcome{Verdict: labkit.Passed}
	for _, pass := range u.passes(profile) {
		r, ok := runs[pass]
		n := count(r.Specs)
		switch {
		case !ok:
			return labkit.InconclusiveBecause("the pass %s is not recorded", pass), false
		case slices.ContainsFunc(r.Specs, spec.setUp):
			return labkit.InconclusiveBecause("the pass %s: the suite's set-up or clean-up failed", pass), false
		case n[passed]+n[failed] == 0:
			return labkit.InconclusiveBecause("the pass %s ran nothing (%s)", pass, r.Exit), false
		case r.Exit != "" && n[failed] == 0:
			return labkit.InconclusiveBecause("the pass %s ended with %s, but none of its specs failed", pass, r.Exit), false
		}
		res.Measure(pass+" pass", r.Seconds, "s")
		for _, x := range r.Specs {
			switch t := at(x.Name); x.Result {
			case passed:
				t.passed++
			case failed:
				t.failed++
			case skipped:
				t.skipped++
			}
		}
	}
	for _, x := range runs[passAgain].Specs {
		switch t := at(x.Name); x.Result {
		case passed:
			t.again++
		case failed:
			t.failedAgain++
		}
	}
	bad := u.planFaults(profile, plan.Specs)
	ok, left := 0, 0
	for _, name := range sortedNames(tallies) {
		t := tallies[name]
		fault, flaky := u.fault(name, t)
		if fault != "" {
			bad = append(bad, fault)
			continue
		}
		if flaky {
			res.Facts = append(res.Facts, "passed only when run again alone: "+name)
		}
		if t.passed+t.failed == 0 {
			left += t.planned
			continue
		}
		ok += t.planned
	}
	flaky := len(res.Facts)
	res.Measure("specs passed", float64(ok), "")
	res.Measure("specs left out", float64(left), "")
	res.Measure("passed only when run again alone", float64(flaky), "")
	res.Why = fmt.Sprintf("%d of %d conformance specs passed, %d of them only when run again alone; %d left out (%s)", ok, len(plan.Specs), flaky, left, u.file)
	if len(bad) > 0 {
		res.Verdict = labkit.Failed
		res.Why += "; " + strings.Join(bad, "\n")
	}
	return res, true
}

// planFaults compares the plan with the table.
func (u *suite) planFaults(p labkit.Profile, specs []string) []string {
	n, sum := u.table.want(p)
	switch {
	case len(specs) != n:
		return []string{fmt.Sprintf("the suite plans %d specs, but %s has %d", len(specs), u.file, n)}
	case sum != "" && sumOf(specs) != sum:
		return []string{fmt.Sprintf("the planned specs are not those of %s: the sum of their names is %s", u.file, sumOf(specs))}
	}
	return nil
}

// fault says what is wrong with the specs of a name; flaky that they passed only
// when run again.
func (u *suite) fault(name string, t *tally) (fault string, flaky bool) {
	reason := u.table.reason(name)
	switch n := t.passed + t.failed; {
	case t.planned == 0:
		return name + ": ran, but the suite had not planned it", false
	case n == 0 && t.skipped == 0:
		return name + ": planned, but it did not run", false
	case n == 0 && reason == "":
		return name + ": skipped itself, and " + u.file + " has no reason", false
	case n == 0:
		return "", false
	case reason != "":
		return name + ": ran, and " + u.file + " says that it skips itself", false
	case n != t.planned:
		return fmt.Sprintf("%s: planned %d times, ran %d times", name, t.planned, n), false
	case t.failed == 0:
		return "", false
	case t.again >= t.failed && t.failedAgain == 0:
		return "", true
	case t.again+t.failedAgain == 0:
		return name + ": failed", false
	}
	return name + ": failed, also when run again alone", false
}

func sortedNames(m map[string]*tally) []string {
	var out []string
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func judgeSwap(h *history.History) labkit.Outcome {
	var way []string
	for _, o := range history.Of[swapped](h) {
		if o.Begun == 0 || o.Begun >= o.Of || !o.During {
			return labkit.InconclusiveBecause("the swap to %s was not in the middle of the pass: %d of %d specs had begun, the pass was still running: %t", o.To, o.Begun, o.Of, o.During)
		}
		way = append(way, o.To)
	}
	if !slices.Equal(way, []string{"ours", "stock"}) {
		return labkit.InconclusiveBecause("the swaps were %q", way)
	}
	res, whole := clusterSuite.verdict(h)
	if whole {
		res.Why += "; controller manager and kubelets were swapped to Holdfast and back to stock while specs ran"
	}
	return res
}
