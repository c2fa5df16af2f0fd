// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costatrest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/costlab"
)

// made has readings of all quantities in all pairs, in which ours takes factor times what
// stock takes, or what change makes of it.
func made(p labkit.Profile, factor float64, c judgetest.Change) *history.History {
	var list []any
	for i := range sizeOf(p).pairs() {
		for _, component := range []string{kubelet, manager} {
			for who, f := range map[string]float64{costlab.Stock: 1, costlab.Ours: factor} {
				r := costlab.Reading{Component: component, Who: who, Pair: i, Took: map[costlab.Quantity]float64{}}
				for j, q := range quantities {
					r.Took[q] = f * float64(100*(1+j)+i)
				}
				list = append(list, r)
			}
		}
	}
	return history.Make(history.Begin{Lab: "cost-at-rest", Variant: string(labkit.Ours), Profile: string(p)}, c.Of(list)...)
}

// TestRound: each program's builds run beside both of the other, and in each pair of a program the
// other one is the same, and each build is first in one of the two pairs.
func TestRound(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(200) {
		turns := round(rand.New(rand.NewPCG(seed, 1)))
		all := map[turn]bool{}
		firstKubelet, firstManager := map[int]string{}, map[int]string{}
		for _, x := range turns {
			all[x] = true
			if p := pair(1, x.manager); firstKubelet[p] == "" {
				firstKubelet[p] = x.kubelet
			}
			if p := pair(1, x.kubelet); firstManager[p] == "" {
				firstManager[p] = x.manager
			}
		}
		if len(turns) != 4 || len(all) != 4 {
			t.Fatalf("%v: %d kinds of turns", turns, len(all))
		}
		for what, first := range map[string]map[int]string{kubelet: firstKubelet, manager: firstManager} {
			if first[2] == "" || first[3] == "" || first[2] == first[3] {
				t.Fatalf("%v: %s: first are %v", turns, what, first)
			}
		}
		orders[fmt.Sprint(turns)] = true
	}
	if len(orders) != 8 {
		t.Errorf("%d orders, want 8", len(orders))
	}
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "cost-at-rest")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, made(p, 1.015, nil))
		judgetest.Judge(t, l, made(p, 0.5, nil), labkit.Passed)
		judgetest.Judge(t, l, made(p, 1.31, nil), labkit.Failed)
	}
	judgetest.Judge(t, l, made(labkit.Short, 1.2, nil), labkit.Passed)
	judgetest.Judge(t, l, made(labkit.Long, 1.03, nil), labkit.Failed)

	long := func(c judgetest.Change) *history.History { return made(labkit.Long, 1, c) }
	// some changes the resident memory of our kubelet in the pairs that of has.
	some := func(factor float64, of func(pair int) bool) judgetest.Change {
		return judgetest.Where(func(r costlab.Reading) bool { return r.Component == kubelet && r.Who == costlab.Ours && of(r.Pair) },
			func(r *costlab.Reading) { r.Took[costlab.RSS] *= factor })
	}
	every := func(int) bool { return true }
	judgetest.Judged(t, l, labkit.Failed, long, map[string]judgetest.Change{
		"1 of 16 ratios are above 1.02: kubelet, resident memory: 1.030": some(1.03, every),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, long, map[string]judgetest.Change{
		"1 of 16 ratios may be above 1.10: kubelet, resident memory: 1.200 (1.000 to 1.200)": some(1.2, func(i int) bool { return i > 0 }),
		"pair 1: the resident memory of kubelet ours is 0":                                   some(0, every),
		"pair 3 has no reading of kube-controller-manager stock": judgetest.Without(func(r costlab.Reading) bool {
			return r.Component == manager && r.Who == costlab.Stock && r.Pair == 2
		}),
	})
	judgetest.Judged(t, l, labkit.Passed, long, map[string]judgetest.Change{
		"but 1 medians are above 1.02": some(1.03, func(i int) bool { return i > 0 }),
		"and no median is abov":        some(1.03, func(i int) bool { return i > 2 }),
	})
}
