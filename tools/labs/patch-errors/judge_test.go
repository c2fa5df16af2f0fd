// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patcherrors

import (
	"fmt"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// failure is the body of a Status.
func failure(code int) string {
	return fmt.Sprintf(`{"kind":"Status","status":"Failure","message":"no","reason":"Bad","code":%d}`, code)
}

// observed is what a run records: ours, or as stock does.
func observed(stock bool) []any {
	var out []any
	for _, p := range patches {
		a := answered{Patch: p.Name, Code: p.Want, Body: failure(p.Want)}
		if stock && !p.Same {
			a.Code, a.Body = 500, `{"kind":"Status","status":"Failure","message":"no","code":500}`
		}
		out = append(out, a)
	}
	for _, v := range versions {
		for _, r := range rollbacks {
			o := rolledBack{Version: v, Rollback: r, Code: r.Want, Body: failure(r.Want)}
			to := r.Reaches
			if stock && r.StockReaches != "" {
				o.Code, to = 201, r.StockReaches
			}
			if to != "" {
				o.Reached = []string{to}
			}
			out = append(out, o)
		}
	}
	out = append(out, printed{1, "Error from server: " + failedTest})
	for _, p := range fatals {
		f := fatally{Patch: p.Name, Code: p.Want, Body: failure(p.Want), Later: 200}
		if stock {
			f = fatally{Patch: p.Name, Ended: true}
		}
		out = append(out, f)
	}
	return out
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "patch-errors")
	of := func(v labkit.Variant, o []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: string(labkit.Short)}, o...)
	}
	judgetest.Cut(t, l, of(labkit.Ours, observed(false)))
	for _, v := range []labkit.Variant{labkit.Stock, labkit.GateOff, labkit.Ours} {
		judgetest.Judge(t, l, of(v, observed(true)), labkit.Reproduced)
	}
	good, stock := observed(false), observed(true)
	// One of stock's answers among ours: the fix lacks something.
	for i := range good {
		same := fmt.Sprint(good[i]) == fmt.Sprint(stock[i])
		one := append([]any{}, good...)
		one[i] = stock[i]
		want := map[bool]labkit.Verdict{true: labkit.Absent, false: labkit.Reproduced}[same]
		judgetest.Judge(t, l, of(labkit.Ours, one), want)
		if !same {
			// Stock must show all of it.
			judgetest.Judge(t, l, of(labkit.Stock, one), labkit.Inconclusive)
		}
	}
	// What neither answers, and answers without a reason.
	for i := range good {
		one := append([]any{}, good...)
		switch o := good[i].(type) {
		case answered:
			one[i] = answered{Patch: o.Patch, Code: o.Code, Body: "<html>"}
			if o.Code == 200 {
				one[i] = answered{Patch: o.Patch, Code: 409, Body: failure(409)}
			}
		case rolledBack:
			o.Reached = append([]string{"d1"}, o.Reached...)
			one[i] = o
		case printed:
			one[i] = printed{2, "panic: runtime error\n" + failedTest}
		case fatally:
			one[i] = fatally{Patch: o.Patch, Code: o.Code, Body: failure(o.Code)}
		}
		judgetest.Judge(t, l, of(labkit.Ours, one), labkit.Inconclusive)
		// It hides nothing that was seen on ours.
		if i > 0 {
			one[0] = stock[0]
			judgetest.Judge(t, l, of(labkit.Ours, one), labkit.Reproduced)
			// Nor does what was not tried.
			judgetest.Judge(t, l, of(labkit.Ours, append(one[:i:i], one[i+1:]...)), labkit.Reproduced)
		}
	}
}
