// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"holdfast/tools/labkit"
)

// LastOutcomes reads the kept outcomes of labs in a profile, in their order. A lab that has not been run in it has none.
func LastOutcomes(root string, labs []*labkit.Lab, p labkit.Profile) ([]labkit.Outcome, error) {
	var all []labkit.Outcome
	for _, l := range labs {
		outcomes, err := ReadOutcomes(OutcomesFile(root, l.Name, p))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", OutcomesFile(root, l.Name, p), err)
		}
		all = append(all, outcomes...)
	}
	return all, nil
}

// Formats are those of PrintOutcomes.
var Formats = []string{"text", "json", "markdown"}

// PrintOutcomes writes outcomes in one of Formats.
func PrintOutcomes(w io.Writer, outcomes []labkit.Outcome, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(append([]labkit.Outcome{}, outcomes...)) // [] and not null
	case "markdown":
		fmt.Fprintln(w, "| lab | variant | verdict | expected | why | numbers | commit | took |\n|---|---|---|---|---|---|---|---|")
		for _, o := range outcomes {
			cells := []string{o.Lab, string(o.Variant), string(o.Verdict), string(o.Expected), o.FirstLine(), numbers(o), short(o), fmt.Sprintf("%.1f s", o.Seconds)}
			for i, c := range cells {
				cells[i] = strings.ReplaceAll(c, "|", `\|`)
			}
			fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "lab\tvariant\tverdict\t\ttook\tcommit\twhy")
	for _, o := range outcomes {
		mark := "ok"
		if !o.AsExpected() {
			mark = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f s\t%s\t%s\n", o.Lab, o.Variant, o.Verdict, mark, o.Seconds, short(o), o.FirstLine())
	}
	return t.Flush()
}

// short is the commit's first digits.
func short(o labkit.Outcome) string {
	hash, dirty, _ := strings.Cut(o.Commit, "-")
	if dirty != "" {
		dirty = "-" + dirty
	}
	return hash[:min(12, len(hash))] + dirty
}

func numbers(o labkit.Outcome) string {
	var out []string
	for _, n := range o.Numbers {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %g %s", n.Name, n.Value, n.Unit)))
	}
	return strings.Join(out, "; ")
}
