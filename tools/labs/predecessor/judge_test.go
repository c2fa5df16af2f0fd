// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

// made is a history in which each planned cell went well. change may replace the
// observations of one cell.
func made(v labkit.Variant, p labkit.Profile, of place, change func(cell []any)) *history.History {
	var all []any
	for _, w := range order {
		for _, ev := range plan(v, p)[w] {
			at := place{w.name, ev}
			s := kubeletlab.Snapshot{"default/p/web": {ID: "a", Pod: "p"}}
			cell := []any{swapped{Cell: at, What: wayBack, To: w.back(), Before: s, After: s}, asked{at, "p", 18080, "v1 p"}, tookDown{at, w.back(), 3, 0}}
			if v != labkit.Stock {
				cell = append(cell, said{at, w.metric[0], w.metric[1], 1})
			}
			if ev == "bad override" {
				cell = append(cell, overridden{at, true, 1})
			}
			if at == of {
				change(cell)
			}
			all = append(append(all, cell...), lived{at})
		}
	}
	return history.Make(history.Begin{Lab: "predecessor", Variant: string(v), Profile: string(p)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "predecessor")
	judgetest.Cut(t, l, made(labkit.Ours, labkit.Short, place{}, nil))
	judgetest.Cut(t, l, made(labkit.Ours, labkit.Long, place{}, nil))
	first := place{from17.name, "swap, reboot"}
	lost := kubeletlab.Snapshot{"default/p/web": {ID: "b", Pod: "p"}}
	for i, change := range map[int]func(o any) any{
		0: func(o any) any { s := o.(swapped); s.After = lost; return s },
		1: func(o any) any { a := o.(asked); a.Answer = "v1 another"; return a },
		2: func(o any) any { d := o.(tookDown); d.Refused = 2; return d },
		3: func(o any) any { s := o.(said); s.Value = 0; return s },
	} {
		judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, first, func(cell []any) { cell[i] = change(cell[i]) }), labkit.Reproduced)
	}
	// A container of a time without gates has the hash of 1.9; its sandbox must stay.
	off := func(sandbox bool) func([]any) {
		return func(cell []any) {
			s := cell[0].(swapped)
			s.GatesOff, s.After = []string{"p"}, lost
			s.Before = kubeletlab.Snapshot{"default/p/web": {ID: "a", Pod: "p", Sandbox: sandbox}}
			cell[0] = s
		}
	}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, first, off(false)), labkit.Absent)
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, first, off(true)), labkit.Reproduced)
	bad := place{from19.name, "bad override"}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, bad, func(cell []any) { cell[4] = overridden{bad, false, 1} }), labkit.Reproduced)
	short := func(cell []any) { cell[2] = tookDown{first, "v1.7.0", 0, 0} }
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, first, short), labkit.Inconclusive)
	// What was not seen hides nothing that was lost.
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, first, func(cell []any) {
		short(cell)
		s := cell[0].(swapped)
		s.After = lost
		cell[0] = s
	}), labkit.Reproduced)
}
