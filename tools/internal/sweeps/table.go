// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"holdfast/tools/internal/proof"
)

// MarkdownFile is where the repository keeps the table, below the root.
const MarkdownFile = "docs/design/sweep.md"

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

// Faults are why a sweep did not pass: one line each.
func Faults(rows []*Row) []string {
	var bad []string
	for _, r := range rows {
		name := fmt.Sprintf("%s (%s), seed %d", r.Lab, r.Variant, r.Seed)
		switch state := r.State(); {
		case state == Unlike:
			bad = append(bad, fmt.Sprintf("%s: judged %s, and the saved history %s", name, r.Judged, r.Again))
		case r.Kills == 0 && state != Right:
			bad = append(bad, fmt.Sprintf("%s (%s) without a kill: %s, must be %s: %s", r.Lab, r.Variant, r.Verdict, r.Expected, r.line()))
		case state == Wrong:
			bad = append(bad, fmt.Sprintf("%s, killed %s: %s, must be %s: %s", name, r.Killed(), r.Verdict, r.Expected, r.line()))
		}
	}
	c := counted(rows)
	if told := c.all() - c[NotMet]; c[Inconclusive]*few > told {
		bad = append(bad, fmt.Sprintf("%d of %d runs are inconclusive, more than 1 in %d", c[Inconclusive], told, few))
	}
	return bad
}

// Print is the table for the console: a line for each run.
func Print(w io.Writer, rows []*Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "lab\tvariant\tseed\tkilled\tverdict\texpected\t\twhy")
	for _, r := range rows {
		killed := r.Killed()
		if r.Kills == 0 {
			killed = "nothing"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Lab, r.Variant, r.Seed, killed, r.Verdict, r.Expected, r.State(), r.line())
	}
	c := counted(rows)
	fmt.Fprintf(t, "%d runs with a kill: %d right, %d inconclusive, %d wrong, %d not met, %d judged otherwise\n",
		c.all(), c[Right], c[Inconclusive], c[Wrong], c[NotMet], c[Unlike])
	return t.Flush()
}

// WriteMarkdown writes the page of the repository from the rows of the record.
func WriteMarkdown(w io.Writer, rows []*Row) error {
	c := counted(rows)
	if c.all() == 0 {
		return fmt.Errorf("no lab was swept: run lab sweep first")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Fault sweeps\n\n`lab sweep --write` writes this page from [sweep.json](../../sweep.json), which has the commit of\neach run; [labs](labs.md#fault-sweeps) explains it.\n\n")
	fmt.Fprintf(&b, "Last run %s. Of %d runs with a kill -9: %d right, %d inconclusive, %d wrong. In %d more the\nkill met nothing that ran. %d saved histories were judged otherwise.\n\n",
		lastRun(rows), c.all()-c[NotMet], c[Right], c[Inconclusive], c[Wrong], c[NotMet], c[Unlike])
	group := func(title string, keys func(*Row) []string) {
		of := map[string][]*Row{}
		for _, r := range rows {
			for _, k := range keys(r) {
				of[k] = append(of[k], r)
			}
		}
		fmt.Fprintf(&b, "| %s | runs | right | inconclusive | wrong | not met |\n|---|---|---|---|---|---|\n", title)
		for _, k := range slices.Sorted(maps.Keys(of)) {
			c := counted(of[k])
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n", k, c.all()-c[NotMet], c[Right], c[Inconclusive], c[Wrong]+c[Unlike], c[NotMet])
		}
	}
	group("lab | profile | seeds", func(r *Row) []string {
		if r.Kills == 0 {
			return nil
		}
		return []string{fmt.Sprintf("%s | %s | %s", r.Lab, r.Profile, seeds(rows, r))}
	})
	page := strings.Replace(b.String(), "|---|---|---|---|---|---|\n", "|---|---|---|---|---|---|---|---|\n", 1)
	b.Reset()
	b.WriteString(page)
	b.WriteString("\n## By component\n\n")
	group("killed", func(r *Row) []string {
		var kinds []string
		for _, d := range r.Report.Done {
			if !slices.Contains(kinds, d.Component) {
				kinds = append(kinds, d.Component)
			}
		}
		return kinds
	})
	for _, part := range []struct{ state, title string }{{Inconclusive, "Inconclusive"}, {Wrong, "Wrong"}, {Unlike, "Judged otherwise"}} {
		if c[part.state] == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| lab | variant | seed | killed | why |\n|---|---|---|---|---|\n", part.title)
		for _, r := range rows {
			if r.Kills > 0 && r.State() == part.state {
				fmt.Fprintf(&b, "| %s | %s | %d | %s | %s: %s |\n", r.Lab, r.Variant, r.Seed, r.Killed(), r.Verdict, cell(r.line()))
			}
		}
	}
	fmt.Fprintf(&b, "\n## Commits\n\n%s\n", commits(rows))
	_, err := io.WriteString(w, b.String())
	return err
}

// lastRun is the day of the latest row.
func lastRun(rows []*Row) string {
	latest := slices.MaxFunc(rows, func(a, b *Row) int { return a.Began.Compare(b.Began) })
	return latest.Began.UTC().Format(time.DateOnly)
}

// seeds says which were run of the lab of r, with what was to be killed.
func seeds(rows []*Row, r *Row) string {
	most, kill := uint64(0), "by chance"
	for _, o := range rows {
		if o.Lab == r.Lab && o.Profile == r.Profile && o.Kills > 0 {
			most = max(most, o.Seed)
			if o.Kill != "" {
				kill = "each component"
			}
		}
	}
	return fmt.Sprintf("%d, %s", most, kill)
}

// cell is a text that does not end a cell of a table.
func cell(s string) string {
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return strings.ReplaceAll(s, "|", "\\|")
}

// commits are those of the rows, with how many runs each.
func commits(rows []*Row) string {
	n := map[string]int{}
	for _, r := range rows {
		n[proof.ShortCommit(r.Commit)]++
	}
	var out []string
	keys := slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(n[b]-n[a], strings.Compare(a, b)) })
	for _, k := range keys {
		out = append(out, fmt.Sprintf("* %s: %d runs", k, n[k]))
	}
	return strings.Join(out, "\n")
}
