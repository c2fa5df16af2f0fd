// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trackrecord writes the table of incidents from the fixes and the record of what
// the labs answered last.
package trackrecord

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
	"holdfast/tools/record/outcomes"
)

// Page has the table.
const Page = "docs/evidence/track-record.md"

// up leads from the page's folder to the root.
const up = "../../"

// Head is the table's head.
const Head = "| incident | fix | base | upstream | Holdfast | without it | gate off | lab |\n|---|---|---|---|---|---|---|---|\n"

// notYet is the verdict of a lab that is not in the record.
const notYet = "not yet"

// noLab stands where a fix has no lab that could answer.
const noLab = "no lab yet"

// oldest begins the sentence below the table.
const oldest = "The oldest of these runs was on "

// Update returns a page with the table, and the day of its oldest run, in the place of the old
// ones.
func Update(page string, table *fixes.Table, record *outcomes.Record, all labkit.Labs) (string, error) {
	before, rest, ok := strings.Cut(page, Head)
	_, after, ok2 := strings.Cut(rest, "\n\n")
	if !ok || !ok2 {
		return "", fmt.Errorf("%s has no table with the head\n%s", Page, Head)
	}
	if strings.HasPrefix(after, oldest) {
		_, after, _ = strings.Cut(after, "\n\n")
	}
	day := record.Oldest()
	if day == "" {
		day = "no day yet"
	}
	return before + Head + Rows(table, record, all) + "\n" + oldest + day + ".\n\n" + after, nil
}

// row is a line of the table. It is shown if each of its labs saw the incident with stock, and
// provoked it without seeing it with ours.
type row struct {
	text  string
	shown bool
}

// Rows has one for each base of each fix with an incident that a page tells of. A base without a lab
// for an incident that another base has one for is left out: the page of that base says so.
func Rows(table *fixes.Table, record *outcomes.Record, all labkit.Labs) string {
	var b strings.Builder
	for _, r := range rows(table, record, all) {
		b.WriteString(r.text)
	}
	return b.String()
}

func rows(table *fixes.Table, record *outcomes.Record, all labkit.Labs) []row {
	var out []row
	for _, s := range table.Fixes {
		if s.Kind == fixes.Planned {
			out = append(out, row{text: fmt.Sprintf("| %s | `%s` | | %s | %s | | | |\n", s.Incident, s.Name, notYet, notYet)})
			continue
		}
		for _, f := range s.Forms {
			incident := f.Incident
			if incident == "" {
				incident = s.Incident
			}
			if incident == "" || f.Page == "" {
				continue
			}
			name := s.Name
			if path.Base(path.Dir(f.Page)) == f.Base {
				name += "-" + f.Base
			}
			labs, command := labsOf(f, []string{name, s.Name}, all)
			if len(labs) == 0 && shownElsewhere(s, f, all) {
				continue
			}
			var gated []string
			for _, l := range labs {
				if len(f.Labs[l]) > 0 {
					gated = append(gated, l)
				}
			}
			off := verdicts(record, gated, labkit.GateOff)
			if len(f.Gates) == 0 {
				off = "no gate"
			}
			stock, ours := verdicts(record, labs, base.Stock), verdicts(record, labs, base.Ours)
			minus := ""
			if s.InProduct() {
				minus = answersWithout(s.Name, f, record, all)
			}
			if len(labs) == 0 {
				stock, ours = noLab, noLab
				if minus != "" {
					minus = noLab
				}
				if len(f.Gates) > 0 {
					off = noLab
				}
			}
			shown := stock == "reproduced" && ours == "absent"
			if f.Asleep() != "" {
				ours += fixes.AsleepMark
			}
			out = append(out, row{fmt.Sprintf("| %s | [%s](%s) | %s | %s | %s | %s | %s | %s |\n", incident, name, up+f.Page, f.Base, stock, ours, minus, off, command), shown})
		}
	}
	return out
}

// shownElsewhere says whether a fix has a lab on another base that the same page tells of.
func shownElsewhere(s *fixes.Fix, f *fixes.Form, all labkit.Labs) bool {
	return slices.ContainsFunc(s.Forms, func(o *fixes.Form) bool {
		labs, _ := labsOf(o, []string{s.Name}, all)
		return o != f && o.Page == f.Page && len(labs) > 0
	})
}

// labsOf are the labs of one folder that show a form's incident on stock, and the
// command that runs them: the one of the fix's name, which is the last of names, or else those
// that make test runs, if there are such, in the folder of the lab, or of the name, that is one of
// names.
func labsOf(f *fixes.Form, names []string, all labkit.Labs) (labs []string, command string) {
	var shown []*labkit.Lab
	for _, n := range slices.Sorted(maps.Keys(f.Labs)) {
		if l := all.Find(n); runsStock(l) {
			shown = append(shown, l)
		}
	}
	// One that shows this fix alone says most of it.
	if i := slices.IndexFunc(shown, func(l *labkit.Lab) bool { return l.Name == names[len(names)-1] }); i >= 0 {
		shown = shown[i : i+1]
	} else if slices.ContainsFunc(shown, inSet) {
		shown = slices.DeleteFunc(shown, func(l *labkit.Lab) bool { return !inSet(l) })
	}
	if len(shown) == 0 {
		return nil, ""
	}
	folder := shown[0].Path()
	for _, n := range slices.Backward(names) {
		if l := all.Find(n); l != nil && slices.ContainsFunc(shown, func(o *labkit.Lab) bool { return o.Path() == l.Path() }) {
			folder = l.Path()
		}
		if i := slices.IndexFunc(shown, func(o *labkit.Lab) bool { return path.Base(o.Path()) == n }); i >= 0 {
			folder = shown[i].Path()
		}
	}
	for _, l := range shown {
		if l.Path() == folder {
			labs = append(labs, l.Name)
		}
	}
	command = path.Base(folder)
	named, _ := all.Named([]string{command})
	switch missed := slices.ContainsFunc(labs, func(n string) bool { return !slices.Contains(named, all.Find(n)) }); {
	case len(labs) == 1:
		command = labs[0]
	case missed: // the name is that of another lab of the folder
		command = fmt.Sprintf("%q", strings.Join(labs, " "))
	}
	return labs, "`make lab LAB=" + command + "`"
}

// verdicts is what labs answered in a variant.
func verdicts(record *outcomes.Record, labs []string, v base.Variant) string {
	seen := map[string]bool{}
	for _, l := range labs {
		answer := record.Verdict(l, v)
		if answer == "" {
			answer = notYet
		}
		seen[answer] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// answersWithout is what the labs of a form that run stock answered on ours without the fix: not
// all of them are run so (proof.Rows).
func answersWithout(fix string, f *fixes.Form, record *outcomes.Record, all labkit.Labs) string {
	seen := map[string]bool{}
	for name := range f.Labs {
		if !runsStock(all.Find(name)) {
			continue
		}
		if answer := record.Without(name, fix); answer != "" {
			seen[answer] = true
		}
	}
	if len(seen) == 0 {
		return notYet
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// runsStock says whether a lab runs stock.
func runsStock(l *labkit.Lab) bool { return slices.Contains(l.Runs(), labkit.Stock) }

// inSet says whether make test runs a lab.
func inSet(l *labkit.Lab) bool { return len(l.Test) > 0 }
