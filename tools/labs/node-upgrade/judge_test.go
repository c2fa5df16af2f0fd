// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

// swap is one that went well, with change applied to it.
func swap(i int, to string, change func(*swapped)) swapped {
	r := swapped{Step: i, What: "upgrade", Node: "node1", To: to, Control: "default/control-node1/main", Requests: 100,
		Before:   kubeletlab.Snapshot{"default/web/web": {ID: "a", StartedAt: "1"}, "default/control-node1/main": {ID: "c", StartedAt: "1"}},
		Forecast: []kubeletlab.Told{{Pod: "default/web", Container: "web", ID: "a", Answer: "kept"}, {Pod: "default/control-node1", Container: "main", ID: "c", Answer: "kept"}},
		After:    kubeletlab.Snapshot{"default/web/web": {ID: "a", StartedAt: "1"}, "default/control-node1/main": {ID: "d", StartedAt: "2"}}}
	if change != nil {
		change(&r)
	}
	return r
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "node-upgrade")
	of := func(a, b func(*swapped)) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours"}, planned{2}, swap(1, underTest, a), swap(2, old, b))
	}
	judgetest.Cut(t, l, of(nil, nil))
	removed := func(r *swapped) { r.Removed = 1 }
	judgetest.Judge(t, l, of(nil, removed), labkit.Absent) // by an old kubelet
	for what, h := range map[string]*history.History{
		"an address removed": of(removed, nil),
		"a request failed":   of(nil, func(r *swapped) { r.Failed = 1 }),
		"recreated":          of(func(r *swapped) { r.After["default/web/web"] = kubeletlab.Container{ID: "b"} }, nil),
		"started again":      of(func(r *swapped) { r.After["default/web/web"] = kubeletlab.Container{ID: "a", StartedAt: "2"} }, nil),
		"gone":               of(nil, func(r *swapped) { delete(r.After, "default/web/web") }),
		"told to be new":     of(func(r *swapped) { r.Forecast[0].Answer = "new" }, nil),
		"not known":          of(nil, func(r *swapped) { r.Forecast[0].Answer = "?" }),
		"not told":           of(nil, func(r *swapped) { r.Forecast = r.Forecast[1:] }),
		"no host port":       of(nil, func(r *swapped) { r.NoHostPort = "refused" }),
	} {
		t.Log(what)
		judgetest.Judge(t, l, h, labkit.Reproduced)
	}
	for what, change := range map[string]func(*swapped){
		"no load":              func(r *swapped) { r.Requests = 0 },
		"the control was kept": func(r *swapped) { r.After[r.Control] = r.Before[r.Control] },
		"the control is gone":  func(r *swapped) { delete(r.After, r.Control) },
		"nothing ran":          func(r *swapped) { delete(r.Before, "default/web/web") },
		"nothing was listed":   func(r *swapped) { r.After = nil },
		"the wrong step":       func(r *swapped) { r.Step = 1 },
	} {
		t.Log(what)
		judgetest.Judge(t, l, of(nil, change), labkit.Inconclusive)
		// It does not hide what another swap of ours did.
		judgetest.Judge(t, l, of(func(r *swapped) { r.Failed = 1 }, change), labkit.Reproduced)
	}
	// What stock did reproduces nothing if the forecast was wrong.
	stock := history.Begin{Lab: l.Name, Variant: string(labkit.Stock)}
	told := swap(1, underTest, func(r *swapped) { r.Failed, r.Forecast[0].Answer = 1, "new" })
	judgetest.Judge(t, l, history.Make(stock, planned{1}, told), labkit.Inconclusive)
}
