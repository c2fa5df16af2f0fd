// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"holdfast/cmd/internal/finding"
)

// batchLine is a batch in -o json.
type batchLine struct {
	Version int      `json:"version"`
	Kind    string   `json:"kind"` // "batch"
	Batch   int      `json:"batch"`
	Nodes   []string `json:"nodes"`
}

func batchRows(batches [][]string) [][]string {
	var rows [][]string
	for i, b := range batches {
		rows = append(rows, []string{fmt.Sprint(i + 1), strings.Join(b, ", ")})
	}
	return rows
}

// batches are sets of nodes that can be swapped at the same time: each Service keeps a ready address
// that is none of the set's unready pods. A Service that one node alone takes to zero is HF401's, and
// binds nothing here. Nodes with a STOP or a ? are in no set. A node with more Services goes first, and
// each goes into the first set that has room for it: the sets are large, not the largest possible.
func batches(forecasts []*forecast, all []endpoints) [][]string {
	nodeOf := map[string]int{} // of pods that are unready for a while
	for i, f := range forecasts {
		for uid := range f.unready {
			nodeOf[uid] = i
		}
	}
	// together are the sets of nodes of which one at least must be outside of a batch.
	var together [][]int
	of := make([][]int, len(forecasts)) // by node: which of them it is in
	for _, e := range all {
		nodes, free := map[int]bool{}, false
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				if a.TargetRef == nil {
					free = true
				} else if n, ok := nodeOf[a.TargetRef.UID]; ok {
					nodes[n] = true
				} else {
					free = true
				}
			}
		}
		if free || len(nodes) < 2 {
			continue
		}
		var set []int
		for n := range nodes {
			set = append(set, n)
			of[n] = append(of[n], len(together))
		}
		together = append(together, set)
	}
	var order []int
	for i, f := range forecasts {
		if !slices.ContainsFunc(f.findings, func(x finding.Finding) bool { return x.Level == finding.Stop || x.Level == finding.Unknown }) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(of[b]), len(of[a])) })
	var sets []map[int]bool
	for _, n := range order {
		fits := func(set map[int]bool) bool {
			return !slices.ContainsFunc(of[n], func(t int) bool {
				return !slices.ContainsFunc(together[t], func(m int) bool { return m != n && !set[m] })
			})
		}
		i := slices.IndexFunc(sets, fits)
		if i < 0 {
			i, sets = len(sets), append(sets, map[int]bool{})
		}
		sets[i][n] = true
	}
	var out [][]string
	for _, set := range sets {
		var names []string
		for n := range set {
			names = append(names, forecasts[n].node)
		}
		slices.Sort(names)
		out = append(out, names)
	}
	slices.SortStableFunc(out, func(a, b []string) int { return cmp.Compare(len(b), len(a)) })
	return out
}
