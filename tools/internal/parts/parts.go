// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parts runs the parts of `make test` one after the other, times each,
// and closes with a table. A part that fails does not keep the others from
// running, unless they need it.
package parts

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Count is what a part found. Skipped tests are named in its output.
type Count struct{ Passed, Failed, Skipped int }

// Part is one piece of the tests.
type Part struct {
	Name string
	// Needs names parts without which this one cannot run; it counts as failed
	// when one of them did.
	Needs []string
	// Fresh says that Select brings what it needs: it would run what was built of other
	// sources, and say nothing of it. The others are quick to ask for alone (make check).
	Fresh bool
	Run   func() (Count, error)
}

// Budget is what all parts together may take on two cores from empty caches.
const Budget = 60 * time.Minute

// Run runs the parts and reports whether all passed.
func Run(w io.Writer, all []Part) bool {
	failed := map[string]bool{}
	var total Count
	var lines []string
	begin := time.Now()
	for _, p := range all {
		fmt.Fprintf(w, "\n=== %s\n", p.Name)
		start := time.Now()
		var n Count
		err := missing(p, failed)
		if err == nil {
			n, err = p.Run()
		}
		if err != nil && n.Failed == 0 {
			n.Failed = 1
		}
		word := "ok"
		if n.Failed > 0 {
			word = "FAILED"
			failed[p.Name] = true
		}
		if err != nil {
			fmt.Fprintf(w, "%s: %v\n", p.Name, err)
		}
		l := fmt.Sprintf("%-22s %-6s %5d passed %4d failed %7.1f s", p.Name, word, n.Passed, n.Failed, time.Since(start).Seconds()) + n.skipped()
		fmt.Fprintf(w, "--- %s\n", l)
		lines = append(lines, l)
		total.Passed += n.Passed
		total.Failed += n.Failed
		total.Skipped += n.Skipped
	}
	took := time.Since(begin)
	fmt.Fprintln(w, "\npart                   result")
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "all parts took %.1f min of a budget of %.0f min\n", took.Minutes(), Budget.Minutes())
	fmt.Fprintf(w, "%d passed, %d failed%s\n", total.Passed, total.Failed, total.skipped())
	return total.Failed == 0
}

// skipped is the end of a line, if any test was skipped.
func (n Count) skipped() string {
	if n.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf(", %d skipped", n.Skipped)
}

// Select is the parts of all with these names, in the order of all, and where one is Fresh
// those that it needs, and that these need; without names it is all.
func Select(all []Part, names []string) []Part {
	if len(names) == 0 {
		return all
	}
	wanted, fresh := map[string]bool{}, map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var out []Part
	// A part needs only parts before it.
	for _, p := range slices.Backward(all) {
		if !wanted[p.Name] {
			continue
		}
		if p.Fresh || fresh[p.Name] {
			for _, n := range p.Needs {
				wanted[n], fresh[n] = true, true
			}
		}
		out = append(out, p)
	}
	slices.Reverse(out)
	return out
}

func missing(p Part, failed map[string]bool) error {
	for _, n := range p.Needs {
		if failed[n] {
			return fmt.Errorf("not run: it needs the part %q, which failed", n)
		}
	}
	return nil
}
