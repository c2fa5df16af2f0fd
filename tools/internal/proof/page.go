// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"holdfast/tools/labkit"
)

// Matrix is what proof.json has and the page shows.
type Matrix struct {
	Made time.Time `json:"made"`
	Rows []Shown   `json:"rows"`
}

// Shown is a row with its answers; a column that does not apply is null.
type Shown struct {
	Slug    string  `json:"slug"`
	Base    string  `json:"base"`
	Lab     string  `json:"lab"`
	Stock   *Answer `json:"stock"`
	Ours    *Answer `json:"ours"`
	Minus   *Answer `json:"oursMinusSlug"`
	GateOff *Answer `json:"oursGateOff"`
}

// Answers are those of the row that there are.
func (s Shown) Answers() []*Answer {
	var out []*Answer
	for _, a := range []*Answer{s.Stock, s.Ours, s.Minus, s.GateOff} {
		if a != nil {
			out = append(out, a)
		}
	}
	return out
}

// Answer is a cell with its result; that is null before it ran.
type Answer struct {
	Cell
	*Result `json:"result"`
	// Stale: it was made from something else than what is there now.
	Stale bool `json:"stale"`
}

// State is what is to be said of an answer in one word.
func (a *Answer) State() string {
	switch {
	case a.Result == nil:
		return "not run"
	case a.Stale:
		return "stale"
	case a.Outcome.Verdict == labkit.Inconclusive:
		return "inconclusive"
	case !a.Outcome.AsExpected():
		return "wrong"
	}
	return "right"
}

// Class is State as a class of the page's style.
func (a *Answer) Class() string { return strings.ReplaceAll(a.State(), " ", "-") }

// Commit is the first digits of the commit that was run.
func (a *Answer) Commit() string { return ShortCommit(a.Outcome.Commit) }

// ShortCommit is the first digits of a run.Outcome.Commit, and whether there were changes.
func ShortCommit(commit string) string {
	hash, dirty, _ := strings.Cut(commit, "-")
	if dirty != "" {
		dirty = " (changed)"
	}
	return hash[:min(12, len(hash))] + dirty
}

// Show puts the stored results into rows, or the recorded ones where those are of what is there
// now and the stored ones are not.
func Show(rows []Row, keys map[Cell]string, store Store) (*Matrix, error) {
	m := &Matrix{Made: time.Now().UTC().Truncate(time.Second)}
	var bad error
	for _, r := range rows {
		m.Rows = append(m.Rows, r.show(func(c Cell) *Answer {
			res, err := store.Best(c, keys[c])
			bad = errors.Join(bad, err)
			return &Answer{Cell: c, Result: res, Stale: res != nil && res.Key != keys[c]}
		}))
	}
	return m, bad
}

// show puts answers of the cells that there are into the row.
func (r Row) show(answer func(Cell) *Answer) Shown {
	s := Shown{Slug: r.Slug, Base: r.Base, Lab: r.Lab}
	for _, x := range []struct {
		from *Cell
		to   **Answer
	}{{r.Stock, &s.Stock}, {r.Ours, &s.Ours}, {r.Minus, &s.Minus}, {r.GateOff, &s.GateOff}} {
		if x.from != nil {
			*x.to = answer(*x.from)
		}
	}
	return s
}

// Answers are those of all rows, each cell once, in their order.
func (m *Matrix) Answers() []*Answer {
	var out []*Answer
	seen := map[Cell]bool{}
	for _, r := range m.Rows {
		for _, a := range r.Answers() {
			if !seen[a.Cell] {
				seen[a.Cell] = true
				out = append(out, a)
			}
		}
	}
	return out
}

// Counts counts the cells of the matrix by State, each once.
func (m *Matrix) Counts() map[string]int {
	out := map[string]int{}
	for _, a := range m.Answers() {
		out[a.State()]++
	}
	return out
}

// Faults lists the answers that are not right, each once, and the slugs without a
// lab. A lab that does not show the incident on ours minus a slug is such a fault:
// nothing needs that slug.
func (m *Matrix) Faults() []string {
	var out []string
	seen := map[Cell]bool{}
	for _, r := range m.Rows {
		if r.Lab == "" {
			out = append(out, fmt.Sprintf("slug %s (%s): no lab shows it", r.Slug, r.Base))
		}
		for _, a := range r.Answers() {
			if seen[a.Cell] || a.State() == "right" {
				continue
			}
			seen[a.Cell] = true
			line := fmt.Sprintf("%s (%s): %s", a.Cell.Lab, a.Cell.Variant, a.State())
			if a.Result != nil {
				why, _, _ := strings.Cut(a.Outcome.Why, "\n")
				line += fmt.Sprintf(", answered %s and must answer %s: %s", a.Outcome.Verdict, a.Outcome.Expected, why)
			}
			out = append(out, line)
		}
	}
	return out
}

// WriteJSON writes the matrix as JSON.
func (m *Matrix) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(m)
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("proof").Funcs(template.FuncMap{
	"line":    func(s string) string { l, _, _ := strings.Cut(s, "\n"); return l },
	"seconds": func(s float64) string { return fmt.Sprintf("%.0f s", s) },
	"columns": func(r Shown) []column {
		return []column{{"stock", r.Stock}, {"ours", r.Ours}, {"ours without it", r.Minus}, {"gate off", r.GateOff}}
	},
}).Parse(pageText))

type column struct {
	Name   string
	Answer *Answer
}

// WriteHTML writes the matrix as one page without script.
func (m *Matrix) WriteHTML(w io.Writer) error { return page.Execute(w, m) }
