// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// How two builds differ in a name.
const (
	Added   = "added"   // stock has nothing of that name
	Missing = "missing" // stock alone has it
	Changed = "changed" // both have it, with another value
	Counts  = "counts"  // more or fewer, beyond stock's own spread
)

// Difference is one name in which the builds differ.
type Difference struct {
	Kind, Component, Name, How string
	Stock, Other               string // values or counts
}

func (d Difference) String() string {
	s := fmt.Sprintf("%s %s %q: %s", d.Component, d.Kind, d.Name, d.How)
	switch d.How {
	case Added:
		return s + valued(": ", d.Other)
	case Missing:
		return s + valued(": ", d.Stock)
	}
	return fmt.Sprintf("%s: stock %s, other %s", s, d.Stock, d.Other)
}

func valued(before, value string) string {
	if value == "" {
		return ""
	}
	return before + value
}

type key struct{ kind, component, name string }

// seen is how one side's runs are in one name.
type seen struct {
	values map[string]int // in how many runs a value was seen
	runs   int            // in which the name was seen at all
	counts []int          // of each run
}

func collect(runs []Run) map[key]*seen {
	out := map[key]*seen{}
	for i, r := range runs {
		once := map[Fact]bool{}
		named := map[key]bool{}
		for _, f := range r {
			k := key{f.Kind, f.Component, f.Name}
			s := out[k]
			if s == nil {
				s = &seen{values: map[string]int{}, counts: make([]int, len(runs))}
				out[k] = s
			}
			s.counts[i] += max(f.Count, 1)
			f.Count = 0
			if !once[f] {
				once[f] = true
				s.values[f.Value]++
			}
			if !named[k] {
				named[k] = true
				s.runs++
			}
		}
	}
	return out
}

// Compare lists in what other differs from stock. Runs of one build differ among
// themselves, so only this counts: what each run of one side has and no run of the
// other. A count differs when the sides' ranges lie apart by more than Slack.
func Compare(stock, other []Run) []Difference {
	a, b := collect(stock), collect(other)
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var out []Difference
	for k := range keys {
		if d, ok := differ(k, a[k], b[k], len(stock), len(other)); ok {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(x, y Difference) int {
		return cmp.Or(strings.Compare(x.Component, y.Component), strings.Compare(x.Kind, y.Kind), strings.Compare(x.Name, y.Name))
	})
	return out
}

func differ(k key, a, b *seen, stock, other int) (Difference, bool) {
	if a == nil {
		a = &seen{counts: make([]int, stock)}
	}
	if b == nil {
		b = &seen{counts: make([]int, other)}
	}
	d := Difference{Kind: k.kind, Component: k.component, Name: k.name}
	gone, came := only(a, b, stock), only(b, a, other)
	d.Stock, d.Other = strings.Join(gone, " | "), strings.Join(came, " | ")
	switch {
	case a.runs == 0 && b.runs == other:
		d.How, d.Other = Added, strings.Join(slices.Sorted(maps.Keys(b.values)), " | ")
		return d, true
	case b.runs == 0 && a.runs == stock:
		d.How, d.Stock = Missing, strings.Join(slices.Sorted(maps.Keys(a.values)), " | ")
		return d, true
	case len(gone)+len(came) > 0:
		d.How = Changed
		return d, true
	}
	if kind := KindOf(k.kind); kind == nil || !kind.Counted || a.runs == 0 || b.runs == 0 {
		return d, false
	}
	slack := Slack(a.counts)
	if slices.Min(b.counts) > slices.Max(a.counts)+slack || slices.Max(b.counts)+slack < slices.Min(a.counts) {
		d.How, d.Stock, d.Other = Counts, between(a.counts), between(b.counts)
		return d, true
	}
	return d, false
}

// only are the values that each run of a has, of which there are n, and none of b.
func only(a, b *seen, n int) []string {
	var out []string
	for v, runs := range a.values {
		if runs == n && b.values[v] == 0 {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// Slack is by how much a count may lie outside the counts of stock's runs: by as much
// again as these lie apart, and by two at least, as what is done at an interval may
// fall into a run once more or once less at each end.
func Slack(counts []int) int {
	return max(2, slices.Max(counts)-slices.Min(counts))
}

func between(counts []int) string {
	if lo, hi := slices.Min(counts), slices.Max(counts); lo != hi {
		return fmt.Sprintf("%d to %d", lo, hi)
	}
	return fmt.Sprint(counts[0])
}
