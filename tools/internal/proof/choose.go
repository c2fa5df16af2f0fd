// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// Choice is which runs of a suite are to be made, and which are left out because the record has
// their answers.
type Choice struct {
	Runs, LeftOut []run.Chosen
	// Always are the labs that run although the record has all their answers.
	Always []string
}

// SuiteSeed is the seed of the labs of make test, and so of the record's runs that they repeat.
const SuiteSeed = 1

// ChooseFor is Choose for the labs of make test, the slugs of the product and its tools, and a
// record.
func ChooseFor(table *slugs.Table, record *Record, key func(Cell) (string, error)) (Choice, error) {
	rows, err := Rows(table, nil, labkit.Short, SuiteSeed)
	if err != nil {
		return Choice{}, err
	}
	columns := Cells(rows)
	var forms []*slugs.Form
	for _, s := range table.Slugs {
		if s.InProduct() || s.Kind == slugs.Tool {
			forms = append(forms, s.Forms...)
		}
	}
	cell := func(lab string, v labkit.Variant) Cell { return Cell{lab, v, labkit.Short, SuiteSeed} }
	return Choose(run.SuiteRuns(), forms,
		func(lab string, v labkit.Variant) bool {
			l, err := labkit.Find(lab)
			return err != nil || always(l, v)
		},
		func(lab string, v labkit.Variant) bool { return slices.Contains(columns, cell(lab, v)) },
		func(lab string, v labkit.Variant) (bool, error) {
			r := record.Result(cell(lab, v))
			if r == nil || r.Key == "" || !r.Outcome.AsExpected() {
				return false, nil
			}
			now, err := key(cell(lab, v))
			return r.Key == now, err
		})
}

// Print says what runs and what does not.
func (c Choice) Print(w io.Writer) {
	count := func(all []run.Chosen) (n int) {
		for _, x := range all {
			n += len(x.Variants)
		}
		return n
	}
	fmt.Fprintf(w, "labs: %d runs of %d labs; %d more are left out, because %s has their answers of the same binaries, labs and kit\n",
		count(c.Runs), len(c.Runs), count(c.LeftOut), RecordFile)
	fmt.Fprintf(w, "labs: always run, one for each slug: %s\n", strings.Join(c.Always, ", "))
	for _, x := range c.LeftOut {
		var vs []string
		for _, v := range x.Variants {
			vs = append(vs, string(v))
		}
		fmt.Fprintf(w, "labs: left out: %s (%s)\n", x.Lab, strings.Join(vs, ", "))
	}
	if len(c.LeftOut) > 0 {
		fmt.Fprintf(w, "labs: make test ALL=1 runs them too\n")
	}
}

// reports are the slugs of the five incidents that operators have told in public. Their labs run on
// stock too, whatever is known: who runs make test for the first time sees each incident.
var reports = []string{"reflector-monotonic-rv", "hash-collision", "container-hash-compat", "unready-before-replace", "rbd-detach"}

// always says whether a run of a lab of Choice.Always is made although its answer is known.
func always(l *labkit.Lab, v labkit.Variant) bool {
	switch v {
	case labkit.GateOff:
		return false
	case labkit.Stock:
		return slices.ContainsFunc(l.Slugs(), func(s string) bool { return slices.Contains(reports, s) })
	}
	return true
}

// Choose leaves out of a suite what has not changed: the runs for which known says that the
// record has the right answer of what is there now. Two kinds of runs are never left out. Of each
// form of a slug one lab runs, so that each fix is seen on the computer at hand: those labs that
// show the most slugs, in the variants of repeat. And a variant that is no column of the matrix (in
// matrix) runs if its lab runs at all; a lab without any such column always does.
func Choose(suite []run.Chosen, forms []*slugs.Form, repeat, matrix func(lab string, v labkit.Variant) bool, known func(lab string, v labkit.Variant) (bool, error)) (Choice, error) {
	var c Choice
	c.Always = cover(suite, forms)
	for _, s := range suite {
		made, some, columns := map[labkit.Variant]bool{}, false, 0
		for _, v := range s.Variants {
			if !matrix(s.Lab, v) {
				continue
			}
			same, err := known(s.Lab, v)
			if err != nil {
				return c, err
			}
			made[v] = !same || slices.Contains(c.Always, s.Lab) && repeat(s.Lab, v)
			some = some || made[v]
			columns++
		}
		var runs, left []labkit.Variant
		for _, v := range s.Variants {
			if made[v] || !matrix(s.Lab, v) && (some || columns == 0) {
				runs = append(runs, v)
			} else {
				left = append(left, v)
			}
		}
		if len(runs) > 0 {
			c.Runs = append(c.Runs, run.Chosen{Lab: s.Lab, Variants: runs})
		}
		if len(left) > 0 {
			c.LeftOut = append(c.LeftOut, run.Chosen{Lab: s.Lab, Variants: left})
		}
	}
	return c, nil
}

// cover are labs of the suite that show each form of a slug, as far as any does: the one that
// shows the most first, and so on. Labs that the suite runs on ours alone count last, because they
// do not show what the fix is for.
func cover(suite []run.Chosen, forms []*slugs.Form) []string {
	left := map[*slugs.Form]bool{}
	for _, f := range forms {
		left[f] = true
	}
	shows := func(lab string) int {
		n := 0
		for f := range left {
			if _, ok := f.Labs[lab]; ok {
				n++
			}
		}
		return n
	}
	var labs []string
	for {
		best := slices.MaxFunc(suite, func(a, b run.Chosen) int {
			return cmp.Or(cmp.Compare(min(shows(a.Lab), 1), min(shows(b.Lab), 1)), // any at all
				cmp.Compare(min(len(a.Variants), 2), min(len(b.Variants), 2)),
				cmp.Compare(shows(a.Lab), shows(b.Lab)))
		})
		if shows(best.Lab) == 0 {
			slices.Sort(labs)
			return labs
		}
		labs = append(labs, best.Lab)
		for f := range left {
			if _, ok := f.Labs[best.Lab]; ok {
				delete(left, f)
			}
		}
	}
}
