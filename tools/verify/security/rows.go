// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"slices"
	"strings"
)

// row is a line of a table of the page: by the bases' order what each says in the same words, nil
// where a base says nothing or something else.
type row struct{ of []*Entry }

// rows are those of the entries that have one of the statuses, in the first base's order. What
// another base says of the same numbers in other words stands below.
func rows(all []*Judged, statuses []Status) []*row {
	var out []*row
	for i, j := range all {
		for _, e := range j.Entries {
			if !slices.Contains(statuses, e.Status) {
				continue
			}
			if k := slices.IndexFunc(out, func(r *row) bool { return r.of[i] == nil && alike(r.any(), e) }); k >= 0 {
				out[k].of[i] = e
				continue
			}
			r := &row{of: make([]*Entry, len(all))}
			r.of[i] = e
			at := len(out)
			for k, o := range out {
				if slices.ContainsFunc(o.any().ids(), func(id string) bool { return slices.Contains(e.ids(), id) }) {
					at = k + 1
				}
			}
			out = slices.Insert(out, at, r)
		}
	}
	return out
}

// alike: two bases say the same of the same numbers. Lines and releases are their own.
func alike(a, b *Entry) bool {
	return slices.Equal(a.ids(), b.ids()) && slices.Equal(a.Components, b.Components) && slices.Equal(a.NotLinked, b.NotLinked) &&
		a.What == b.What && a.Status == b.Status && a.Fix == b.Fix && a.Left == b.Left && a.Because == b.Because && a.Do == b.Do
}

// any is the first base's entry: the words are the same in all.
func (r *row) any() *Entry {
	return r.of[slices.IndexFunc(r.of, func(e *Entry) bool { return e != nil })]
}

// releases are those that the row is about.
func (r *row) releases(all []*Judged) string {
	var out []string
	for i, e := range r.of {
		if e != nil {
			out = append(out, name(all[i]))
		}
	}
	return strings.Join(out, ", ")
}

// since has a cell for each base: since which release it is closed there, or what else it is there.
func (r *row) since(all []*Judged) []string {
	var out []string
	for i, e := range r.of {
		if e != nil {
			out = append(out, since(all[i].Of, e))
			continue
		}
		out = append(out, elsewhere(all[i].Table, r.any()))
	}
	return out
}

// elsewhere is what a table says, in a word, of an entry of another base that it has not in the same
// words.
func elsewhere(t *Table, e *Entry) string {
	words := map[Status]string{Closed: "closed in another way", OptIn: "closed by a gate that is off", Affected: "**open**", Documented: "open on purpose", NotAffected: "not affected", Unjudged: "not known yet"}
	found := t.find(e.ids()[0], e.Components[0])
	if found == nil {
		return ""
	}
	return words[found.Status]
}

// lines are the places that the entries name, each with its release if they differ.
func (r *row) lines(all []*Judged, says func(Line) string) string {
	var out []string
	for i, e := range r.of {
		if e != nil && e.Line != nil {
			out = append(out, fmt.Sprintf("%s: %s", name(all[i]), says(*e.Line)))
		}
	}
	if len(out) == 1 {
		_, only, _ := strings.Cut(out[0], ": ")
		return only
	}
	return strings.Join(out, "; ")
}
