// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proof is the matrix of fix × base × {stock, ours, ours without that
// fix, ours with its gates off}: which runs of labs it is made of, how make test-all runs them
// and all others, and the page that shows what they answered.
package proof

import (
	"maps"
	"slices"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
)

// Cell is one run of the matrix: a lab in a variant. Several rows may share it.
type Cell struct {
	Lab     *labkit.Lab
	Variant labkit.Variant
}

// Row is what a lab shows of a fix in a base. A cell that does not apply is nil. Lab
// is nil where a fix of the product has no lab there.
type Row struct {
	Fix, Base                   string
	Lab                         *labkit.Lab
	Stock, Ours, Minus, GateOff *Cell
}

// Cells are those of the row that there are, in the order of the columns.
func (r Row) Cells() []*Cell {
	return slices.DeleteFunc([]*Cell{r.Stock, r.Ours, r.Minus, r.GateOff}, func(c *Cell) bool { return c == nil })
}

// Rows are in the order of the fixes. A lab that shows several fixes is not run without one of
// them if another lab in the fix's form shows that one alone: taking one fix out of many says
// little.
func Rows(table *fixes.Table, all labkit.Labs) []Row {
	var rows []Row
	for _, s := range table.Fixes {
		for _, f := range s.Forms {
			if s.InProduct() && len(f.Labs) == 0 {
				rows = append(rows, Row{Fix: s.Name, Base: f.Base})
			}
			for _, name := range slices.Sorted(maps.Keys(f.Labs)) {
				l := all.Find(name)
				cell := func(v labkit.Variant) *Cell { return &Cell{l, v} }
				row := Row{Fix: s.Name, Base: f.Base, Lab: l}
				runs := l.Runs()
				if slices.Contains(runs, labkit.Stock) {
					row.Stock = cell(labkit.Stock)
				}
				if slices.Contains(runs, labkit.Ours) {
					row.Ours = cell(labkit.Ours)
				}
				if slices.Contains(runs, labkit.GateOff) && len(f.Labs[name]) > 0 {
					row.GateOff = cell(labkit.GateOff)
				}
				if row.Ours != nil && s.InProduct() && !shownAlone(f, l, all) {
					row.Minus = cell(base.Ours.Without(s.Name))
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// shownAlone says whether l shows several fixes and another lab of the form one.
func shownAlone(f *fixes.Form, l *labkit.Lab, all labkit.Labs) bool {
	if len(l.Fixes()) < 2 {
		return false
	}
	for name := range f.Labs {
		if len(all.Find(name).Fixes()) == 1 {
			return true
		}
	}
	return false
}

// Cells are the runs of make test-all: each lab of all in each of its variants, without those on request,
// and the labs of rows without a fix.
func Cells(rows []Row, all labkit.Labs) []Cell {
	var out []Cell
	for _, l := range all {
		if l.OnRequest {
			continue
		}
		for _, v := range l.Runs() {
			out = append(out, Cell{l, v})
		}
	}
	for _, r := range rows {
		if r.Minus != nil && !slices.Contains(out, *r.Minus) {
			out = append(out, *r.Minus)
		}
	}
	return out
}
