// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/output"
)

// Version is in every line of JSON that these commands print. It rises when a field goes or
// changes its meaning.
const Version = 1

// Format is what -o is set to.
type Format string

// The formats.
const (
	Table Format = "table" // 80 columns
	Wide  Format = "wide"  // 160 columns
	JSON  Format = "json"
	HTML  Format = "html" // one file, for a change ticket; of forecast only
)

// String, Set and Type make Format a flag.
func (f *Format) String() string { return string(*f) }

// Set refuses what is no format.
func (f *Format) Set(s string) error {
	switch Format(s) {
	case Table, Wide, JSON:
		*f = Format(s)
		return nil
	}
	return exit.Usagef("use table, wide or json")
}

// Type is what help shows for the value.
func (f *Format) Type() string { return "table|wide|json" }

// withHTML is the flag of a command that has HTML, too.
type withHTML struct{ *Format }

func (f withHTML) Set(s string) error {
	if Format(s) == HTML {
		*f.Format = HTML
		return nil
	}
	if f.Format.Set(s) != nil {
		return exit.Usagef("use table, wide, json or html")
	}
	return nil
}

func (f withHTML) Type() string { return "table|wide|json|html" }

// Width is how many columns a table of the format has.
func (f Format) Width() int {
	if f == Wide {
		return 160
	}
	return 80
}

// Flags adds -o and --fail-on to a command.
func Flags(cmd *cobra.Command, f *Format, failOn *FailOn) {
	flags(cmd, f, failOn, f, "80 columns, 160 columns, or one object a line (version, kind)", "table", "wide", "json")
}

// FlagsHTML adds them to a command that writes HTML, too.
func FlagsHTML(cmd *cobra.Command, f *Format, failOn *FailOn) {
	flags(cmd, f, failOn, withHTML{f}, "80 columns, 160, one object a line, or a page for a ticket", "table", "wide", "json", "html")
}

func flags(cmd *cobra.Command, f *Format, failOn *FailOn, value pflag.Value, help string, formats ...string) {
	*f = Table
	cmd.Flags().VarP(value, "output", "o", help)
	cmd.Flags().Var(failOn, "fail-on", FailOnHelp)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{"STOP", "new", "warn"}, cobra.ShellCompDirectiveNoFileComp))
}

// Colour tells whether w is a terminal that may be given colours: NO_COLOR is not set.
func Colour(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeCharDevice != 0
}

// line is what a finding or the sum is in JSON.
type line struct {
	Version int    `json:"version"`
	Kind    string `json:"kind"`
	*Finding
	Text   string `json:"sum,omitempty"`
	Status *int   `json:"status,omitempty"`
}

// Write prints findings, worst first, and then one line of sum: sum, ": " and Sum(findings). The
// table groups what is alike (Group); JSON does not.
func Write(w io.Writer, findings []Finding, failOn FailOn, format Format, sum string) error {
	text := Sum(findings)
	if sum != "" {
		text = sum + ": " + text
	}
	status := Status(findings, failOn)
	if format == JSON {
		sorted := append([]Finding(nil), findings...)
		Sort(sorted)
		for i := range sorted {
			if err := output.Line(w, line{Version: Version, Kind: "finding", Finding: &sorted[i]}); err != nil {
				return err
			}
		}
		return output.Line(w, line{Version: Version, Kind: "sum", Text: text, Status: &status})
	}
	p := printer{w: w, width: format.Width(), colour: Colour(w)}
	var rows [][]string
	for _, f := range Group(findings) {
		said := f.Text
		if f.Remedy != "" {
			said += "\n-> " + f.Remedy
		}
		rows = append(rows, []string{string(f.Level), f.Code, f.Object, said})
	}
	if len(rows) > 0 {
		p.table([]string{"LEVEL", "CODE", "OBJECT", "WHAT, AND WHAT TO DO"}, rows)
		p.line("")
	}
	for _, l := range wrap(text, p.width) {
		p.line(l)
	}
	return p.err
}

// WriteTable prints rows below a head in columns, at most format.Width() wide: the last column gets
// what the others leave and is wrapped. Text is made printable ASCII.
func WriteTable(w io.Writer, format Format, head []string, rows [][]string) error {
	p := printer{w: w, width: format.Width(), colour: Colour(w)}
	p.table(head, rows)
	return p.err
}

type printer struct {
	w      io.Writer
	width  int
	colour bool
	err    error
}

func (p *printer) line(s string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(s, " "))
	}
}

// table prints rows. No column but the last gets more than a quarter of the width; longer cells are
// wrapped in their column.
func (p *printer) table(head []string, rows [][]string) {
	last := len(head) - 1
	width := make([]int, len(head))
	for i := range last {
		width[i] = len(head[i])
		for _, r := range rows {
			if i < len(r) {
				width[i] = max(width[i], len(Clean(r[i])))
			}
		}
		width[i] = min(width[i], p.width/4)
	}
	used := 0
	for _, n := range width[:last] {
		used += n + 2
	}
	// Where there are many columns, what is left may be nothing.
	width[last] = max(p.width-used, 10)
	for r := -1; r < len(rows); r++ {
		row := head
		if r >= 0 {
			row = rows[r]
		}
		cells, height := make([][]string, len(head)), 1
		for i := range head {
			if i < len(row) {
				for part := range strings.SplitSeq(row[i], "\n") {
					cells[i] = append(cells[i], wrap(part, width[i])...)
				}
			}
			height = max(height, len(cells[i]))
		}
		for l := range height {
			var b strings.Builder
			for i := range head {
				cell := ""
				if l < len(cells[i]) {
					cell = cells[i][l]
				}
				pad := ""
				if i < last {
					pad = strings.Repeat(" ", width[i]-len(cell)+2)
				}
				b.WriteString(p.paint(cell) + pad)
			}
			p.line(b.String())
		}
	}
}

// paint colours a cell that is a level.
func (p *printer) paint(cell string) string {
	colour := map[string]string{string(Stop): "31", string(New): "33", string(Warn): "33", string(Unknown): "35", string(OK): "32"}[cell]
	if !p.colour || colour == "" {
		return cell
	}
	return "\x1b[" + colour + "m" + cell + "\x1b[0m"
}

// maxText bounds what one cell may show, in bytes: whoever writes a command line decides how long it
// is. A kubelet's of 2 KiB must be shown whole, or nobody can copy it.
const maxText = 4096

// Clean makes text of others harmless on a terminal: printable ASCII, one line, bounded.
func Clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText-3] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// wrap cuts text at its spaces into lines of width; a longer word is cut in itself.
func wrap(text string, width int) []string {
	var out []string
	now := ""
	for word := range strings.FieldsSeq(Clean(text)) {
		if now != "" && len(now)+1+len(word) > width {
			out, now = append(out, now), ""
		}
		if now != "" {
			now += " "
		}
		now += word
		for len(now) > width {
			out, now = append(out, now[:width]), now[width:]
		}
	}
	if now != "" || out == nil {
		out = append(out, now)
	}
	return out
}
