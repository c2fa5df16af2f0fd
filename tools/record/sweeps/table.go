// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// few is how many runs there must be for each that is inconclusive.
const few = 20

// count is how many rows there are in each state.
type count map[string]int

func (c count) all() int {
	n := 0
	for _, k := range c {
		n += k
	}
	return n
}

func counted(rows []*Row) count {
	c := count{}
	for _, r := range rows {
		if r.Kills > 0 {
			c[r.State()]++
		}
	}
	return c
}

// Faults are why a kill test did not pass: one line each.
func Faults(rows []*Row) []string {
	var bad []string
	for _, r := range rows {
		name := fmt.Sprintf("%s (%s), seed %d", r.Lab, r.Variant, r.Seed)
		switch state := r.State(); {
		case state == Unlike:
			bad = append(bad, fmt.Sprintf("%s: judged %s, and the saved history %s", name, r.Judged, r.Again))
		case r.Kills == 0 && state != Right:
			bad = append(bad, fmt.Sprintf("%s (%s) without a kill: %s, must be %s: %s", r.Lab, r.Variant, r.Verdict, r.Expected, r.FirstLine()))
		case state == Wrong:
			bad = append(bad, fmt.Sprintf("%s, killed %s: %s, must be %s: %s", name, r.Killed(), r.Verdict, r.Expected, r.FirstLine()))
		}
	}
	c := counted(rows)
	if told := c.all() - c[NotMet]; c[Inconclusive]*few > told {
		bad = append(bad, fmt.Sprintf("%d of %d runs are inconclusive, more than 1 in %d", c[Inconclusive], told, few))
	}
	return bad
}

// Print writes the table: a line for each run, and their number in each state.
func Print(w io.Writer, rows []*Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "lab\tvariant\tseed\tkilled\tverdict\texpected\t\twhy")
	for _, r := range rows {
		killed := r.Killed()
		if r.Kills == 0 {
			killed = "nothing"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Lab, r.Variant, r.Seed, killed, r.Verdict, r.Expected, r.State(), r.FirstLine())
	}
	c := counted(rows)
	fmt.Fprintf(t, "%d runs with a kill: %d right, %d inconclusive, %d wrong, %d not met, %d judged otherwise\n",
		c.all(), c[Right], c[Inconclusive], c[Wrong], c[NotMet], c[Unlike])
	return t.Flush()
}
